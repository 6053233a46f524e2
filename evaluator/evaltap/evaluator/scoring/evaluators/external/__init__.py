"""Metrics that run a command."""
