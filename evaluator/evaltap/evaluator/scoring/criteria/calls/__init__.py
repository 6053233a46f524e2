"""Comparisons of tool calls: pairing, alignment, similarity, patterns."""
