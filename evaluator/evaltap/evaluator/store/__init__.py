"""The DuckDB file: opening, locking, damage, tables and migrations, memory, Arrow.

Writes and reads no row for itself.
"""
