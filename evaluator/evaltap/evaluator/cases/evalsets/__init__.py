"""Eval sets for git: stable content and bytes, comparison and merging."""
