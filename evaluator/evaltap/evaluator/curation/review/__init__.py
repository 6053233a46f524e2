"""Human reviews of landed turns: a queue, append-only decisions, and the agreement between reviewers."""
