"""The contracts of evaluators, judges and embedders: what they receive and return.

A user's own evaluator only needs to import this package.
"""
