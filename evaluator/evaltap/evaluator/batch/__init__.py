"""Finds the cases that metrics still have to score, and scores them in blocks as one run.

From the store, from files or on Ray, with a guard against a case that kills the process.
"""
