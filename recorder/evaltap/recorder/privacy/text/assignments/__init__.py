"""Secrets next to their names: behind an operator, in markup, in cells, in calls."""
