"""From the spans of a trace to observations: buffer, tree, duplicates, tool calls, trajectory."""
