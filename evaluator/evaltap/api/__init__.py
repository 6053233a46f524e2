"""evaltap for programs and notebooks: score, run, compare, and read a store as tables.

`evaltap` itself is a namespace without code, so names are imported from here:

    from evaltap.api import Store, evaluate
"""

from evaltap.api.run import Compared, RegressionError, Run, evaluate
from evaltap.api.store import Store
from evaltap.api.table import Table
from evaltap.evaluator.reports.compare.model import Rules

__all__ = ["Compared", "RegressionError", "Rules", "Run", "Store", "Table", "evaluate"]
