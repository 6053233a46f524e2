"""Decides which content of a case may be recorded: pure functions of a case, and file access."""
