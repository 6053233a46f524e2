"""Metrics of the DeepEval library."""
