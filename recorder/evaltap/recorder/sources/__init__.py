"""Sources of evidence other than plugins.

The span processor, exporters, the OTLP collector, OTLP files and topics, Claude Code transcripts,
replay: each feeds a recorder or a log.
"""
