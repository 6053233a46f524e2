"""Tool calls answered from a recording: one module per framework that swaps a tool before it runs.

Each asks `TOOL_ANSWERS` in the context of the call, so that runs in one process are kept apart; a patch of a
framework's class stays, and without answers every tool runs.
"""
