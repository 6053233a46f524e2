"""Notify receivers when an alarm begins and ends: at least once, in the background."""
