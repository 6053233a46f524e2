"""A case in memory: identity, turns, pairing with references, lazy outline, paths into JSON."""
