"""A part of a text."""

Span = tuple[int, int]
"""The offsets of its start and its end."""
