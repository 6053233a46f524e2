"""Read data sets of other tools as eval cases: tables from files, columns as turns, graders as metrics."""
