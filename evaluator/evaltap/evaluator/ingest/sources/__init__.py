"""Sources of records: one protocol, and one module for each kind of log."""
