"""Criteria over plain values, each compiled once into a function that returns the reason of a mismatch.

A compiled criterion returns None for a match and the reason for a mismatch.  A criterion that is itself wrong
(for example, an unknown strategy) mismatches with that reason, as in tRPC-Agent-Go.  Only criteria that
cannot be evaluated at all (custom comparisons in Go) raise `MetricError` when the metric is built.
"""
