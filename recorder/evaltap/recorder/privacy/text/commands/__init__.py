"""Passwords in command lines."""
