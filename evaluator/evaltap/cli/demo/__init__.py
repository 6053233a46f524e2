"""The demo: a scripted support agent, its expected turns, and the metrics that score it."""
