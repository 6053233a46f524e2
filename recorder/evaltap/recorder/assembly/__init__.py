"""From the observations of a run to a case with one turn."""
