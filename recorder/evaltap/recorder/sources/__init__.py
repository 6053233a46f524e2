"""Where evidence comes from without a plugin.

The span processor, exporters, the OTLP collector, OTLP files and topics, Claude Code transcripts, replay:
each feeds a recorder or a log.
"""
