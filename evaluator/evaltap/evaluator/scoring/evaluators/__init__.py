"""The evaluators that evaltap ships; each is found by name through its entry point."""
