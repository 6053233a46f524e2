"""What an evaluator, a judge and an embedder are, what they are given and return.

A user's own evaluator imports this package only.
"""
