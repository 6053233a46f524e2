"""Decides which cases are kept.  Pure functions of a case, and the file that holds the rules."""
