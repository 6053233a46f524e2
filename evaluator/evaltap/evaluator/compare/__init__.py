"""Two runs over the same cases: what changed, how sure that is, and what could not have been seen."""
