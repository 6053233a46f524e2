"""Intervals and estimators: pure functions of counts and scores."""
