"""Explain, account for and erase the data in a store."""
