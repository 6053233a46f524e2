"""Estimates for all traffic from the turns in the store."""
