"""Finds cases that lack scores and scores them in blocks as one run: from the store, from files, or on Ray.

A crash guard isolates cases that kill the process.
"""
