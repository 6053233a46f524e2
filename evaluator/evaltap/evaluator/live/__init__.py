"""Reads a log, lands what it holds, scores at times and publishes scores, until it is stopped."""
