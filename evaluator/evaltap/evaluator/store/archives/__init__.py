"""Archives: folders or buckets of Parquet files with the rows of a store, which are read as a store."""
