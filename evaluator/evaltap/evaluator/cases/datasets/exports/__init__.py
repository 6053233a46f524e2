"""Export eval cases in the formats of other tools, through functions from cases to files."""
