"""Criteria over plain values: each is compiled once into a function that returns why it mismatches.

A compiled criterion returns None for a match and the reason for a mismatch.  A criterion that is
itself wrong (an unknown strategy, say) mismatches with that reason, as in tRPC-Agent-Go; only what
cannot be honoured at all (a custom comparison in Go) is a `MetricError` when the metric is built.
"""
