"""From a log to rows: sources, Kafka topics, landing."""
