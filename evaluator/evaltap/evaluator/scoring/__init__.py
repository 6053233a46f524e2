"""A case and metrics in, scores out: bind evaluators, pair the turns, run, catch.  No store, no file."""
