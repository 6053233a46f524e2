"""The demo: a scripted support agent, what it should have done, and what is asked of it."""
