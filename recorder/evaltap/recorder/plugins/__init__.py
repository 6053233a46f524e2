"""Plugins for agent frameworks, one module each; importing this package imports none of them."""
