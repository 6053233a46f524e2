"""From landed traffic to eval sets: which turns are picked, which are alike, what a case of them holds."""
