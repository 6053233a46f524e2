"""Agents that an experiment can run: one module per kind, each behind the protocol of `base`."""
