"""Hold an answer back until it passes: dimensions with thresholds, and the loop that revises it."""
