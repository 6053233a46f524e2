"""Answer an agent's tool calls from a recording, or from mocks that a case declares."""
