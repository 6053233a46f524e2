"""Tasks: from rows of a data set to cases, with the metrics that suit them."""
