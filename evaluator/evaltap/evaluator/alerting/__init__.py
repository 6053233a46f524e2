"""Notifies receivers when an alarm starts and ends: at least once, in the background."""
