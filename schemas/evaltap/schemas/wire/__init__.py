"""Records as they appear on a topic: bytes in, typed values out; no file, no network."""
