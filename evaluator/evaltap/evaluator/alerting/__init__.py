"""Tells receivers of alarms: at least once, in the background, and of an alarm's end too."""
