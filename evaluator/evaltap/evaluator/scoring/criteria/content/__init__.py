"""Comparisons of text, JSON and numbers."""
