"""Eval cases in the shapes of other tools: one module per tool, each with a function from cases to files."""
