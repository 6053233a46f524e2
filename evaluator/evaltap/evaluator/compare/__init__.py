"""Two runs over the same cases: what changed, how certain that is, and what could not have been detected."""
