"""Destinations for a recorder's records: memory, a local log, or Kafka through a spool."""
