"""The `evaltap` command; the only part that uses both the recorder and the evaluator."""
