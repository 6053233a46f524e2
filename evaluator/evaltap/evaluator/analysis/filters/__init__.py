"""Select the cases for a command: the filter language, and SQL conditions over a documented view."""
