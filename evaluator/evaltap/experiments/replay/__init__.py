"""Replay recorded sessions with a changed agent, and forecast the pass rate of the traffic."""
