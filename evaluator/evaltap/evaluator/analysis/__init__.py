"""Choosing turns, and honest figures over them: filters, estimates, summaries, statistics."""
