"""Reports: the outcome of a run, or of the latest scores, as one value that every format renders.

`model` says what a report holds, `reading` fills it from the store, `evidence` shows what happened
in the turns of a case; `junit`, `markdown`, `html` and `documents` write it down.
"""
