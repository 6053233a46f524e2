"""Eval sets, metrics, gates and results as files: reading, canonical writing, validation, JSON Schemas."""
