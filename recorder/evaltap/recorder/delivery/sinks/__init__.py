"""Where a recorder writes its records: memory, a local log, Kafka by way of a spool."""
