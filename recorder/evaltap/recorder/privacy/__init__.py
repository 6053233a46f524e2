"""Decides what of a case may be seen.  Pure functions of a case, and the files that hold the rules."""
