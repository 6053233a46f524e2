"""From a run's observations to a case with one turn."""
