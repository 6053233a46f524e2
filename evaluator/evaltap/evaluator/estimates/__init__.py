"""Estimates of all traffic from what the store holds of it."""
