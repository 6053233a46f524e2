"""Compares judges with human labels."""
