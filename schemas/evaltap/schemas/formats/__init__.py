"""The data models: message, case, metric and its criteria, result, gate. No I/O."""
