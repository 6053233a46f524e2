"""An evaluator that kills its own process if a case requests it."""

import os
from typing import Any


def not_deadly(turn: Any, expected: Any = None) -> float:
    """Pass every turn; abort where the answer says so."""
    if "abort here" in (turn.final_text or ""):
        os.abort()
    return 1.0
