"""From landed traffic to eval sets: which turns are picked, which are alike, and what their cases contain."""
