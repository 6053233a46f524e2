"""Export eval cases in the formats of other tools: one module per group, with functions from cases to
files."""
