"""Metrics that use a model as a judge."""
