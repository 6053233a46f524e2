"""Decides which cases are kept: pure functions of a case, and the parser of the rules."""
