"""Which cases a command looks at: the filter language, and SQL conditions over a documented view."""
