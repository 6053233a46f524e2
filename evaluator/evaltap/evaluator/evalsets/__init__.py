"""Eval sets that a team keeps in git: their content, written so that diffs are read, compared and merged."""
