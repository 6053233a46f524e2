"""From a trace's spans to observations: buffer, tree, duplicates, tool calls, trajectory."""
