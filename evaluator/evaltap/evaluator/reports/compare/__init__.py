"""Compare two runs over the same cases: what changed, how certain that is, and what is detectable."""
