"""The forecast of a replay: the pass rate that the traffic would have had with the new agent."""
