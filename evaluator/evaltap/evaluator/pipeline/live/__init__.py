"""The consumer's loop: reads a log, lands and scores records, and publishes scores, until it is stopped."""
