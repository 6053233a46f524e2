"""Attacks the metrics of an agent: prompt injections on a judge."""
