"""Reports: what a run, or the latest scores, came to, as one value that every format renders.

`model` says what a report holds, `reading` fills it from the store, `evidence` shows what happened
in the turns of a case; `junit`, `markdown`, `html` and `documents` write it down.
"""
