"""Read a store that another process has open, through a Unix socket next to the file."""
