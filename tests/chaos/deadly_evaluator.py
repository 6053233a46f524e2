"""An evaluator that kills the process that it runs in, when a case tells it to."""

import os
from typing import Any


def not_deadly(turn: Any, expected: Any = None) -> float:
    """Pass every turn; abort where the answer says so."""
    if "abort here" in (turn.final_text or ""):
        os.abort()
    return 1.0
