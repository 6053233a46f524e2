"""The evaluation server: tRPC-Agent-Go's routes, runs in the background, and Google ADK's eval routes."""
