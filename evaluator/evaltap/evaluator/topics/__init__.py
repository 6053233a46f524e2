"""Kafka beyond reading: clients and writing.

The only package that builds a Kafka client for writing.
"""
