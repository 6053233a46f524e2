"""Explains, accounts for and erases what a store holds."""
