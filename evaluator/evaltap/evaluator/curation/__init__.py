"""Build eval sets from landed traffic: pick turns, group near-duplicates, and create their cases."""
