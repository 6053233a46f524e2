"""Log locations and the local log: locations, folders, Kafka settings, the SQLite log.

The only package of the schemas that does I/O beyond reading and writing one file.
"""
