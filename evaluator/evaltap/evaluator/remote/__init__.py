"""Reading a store that another process holds: a Unix socket beside the file, messages, both ends."""
