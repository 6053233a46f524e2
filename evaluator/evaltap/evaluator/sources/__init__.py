"""Where records come from: one protocol, one module for each kind of log."""
