"""The DuckDB file: opening, locking, damage, tables and migrations, memory, Arrow.

Other packages decide which rows to write and read.
"""
