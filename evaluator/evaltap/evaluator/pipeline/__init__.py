"""What runs for long over a store: batches, the loop of `consume`, maintenance, attacks on judges."""
