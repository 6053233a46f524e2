"""The demo: a scripted support agent, what it should have done, and the metrics that it is scored by."""
