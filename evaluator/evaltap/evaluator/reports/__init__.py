"""Reports: the outcome of a run, or of the latest scores, as one value that every format renders.

`model` defines the content of a report, `reader` reads it from the store, and `evidence` compares the turns
of a case with what was expected.  `junit`, `markdown`, `html` and `documents` write it.
"""
