"""Secrets that sentences tell."""
