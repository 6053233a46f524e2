"""Scores as rows: runs, row types, writer, Parquet, result files."""
