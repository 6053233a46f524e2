"""Where a log is and how the local one works: locations, folders, Kafka settings, the SQLite log.

The only package of the schemas that does I/O beyond reading and writing one file.
"""
