"""Where the recorder puts its records: one protocol, one module for each kind of log."""
