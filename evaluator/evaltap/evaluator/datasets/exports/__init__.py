"""Eval cases in the shapes of other tools: one module a tool, each a function from cases to files."""
