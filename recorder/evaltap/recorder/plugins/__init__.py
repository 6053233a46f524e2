"""Plugins for agent frameworks, one module each; importing this package imports no framework."""
