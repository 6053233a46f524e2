"""What the rows of tests/data/trpc-live want, and how evaltap's public API is asked for it."""
