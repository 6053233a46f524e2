"""Metrics that ask a model."""
