"""Compares judges with people."""
