"""Kafka clients, and writing to topics.  No other package creates a Kafka client for writing."""
