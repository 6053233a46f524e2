"""The summary tables that the page reads: what the rows add up to, made once and kept true."""
