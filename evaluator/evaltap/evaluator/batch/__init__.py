"""Which cases are due under which metrics, scored in blocks with a run around them.

From the store, from files or on Ray, with a guard against a case that kills the process.
"""
