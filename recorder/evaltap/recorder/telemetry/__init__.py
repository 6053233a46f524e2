"""Spans and log records as plain values: from the SDK, OTLP JSON, OTLP protobuf."""
