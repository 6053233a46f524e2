"""The names of tRPC-Agent-Go's tables in a database."""

import re
from typing import Final

from evaltap.schemas.errors import ConfigurationError

TABLES: Final = (
    "evaluation_eval_sets",
    "evaluation_eval_cases",
    "evaluation_metrics",
    "evaluation_eval_set_results",
)
_LONGEST: Final = 64
"""Characters of a table's name, in MySQL."""


def table_names(prefix: str = "") -> list[str]:
    """Return the names of the tables of sets, cases, metrics and results; raise ConfigurationError for a
    prefix that is no name.

    An underscore is added to a prefix without one.
    """
    if prefix and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise ConfigurationError(
            f"table prefix {prefix!r}; expected letters, digits and underscores, no digit first"
        )
    full = prefix if not prefix or prefix.endswith("_") else f"{prefix}_"
    if len(full) + max(map(len, TABLES)) > _LONGEST:
        most = _LONGEST - max(map(len, TABLES)) - 1
        raise ConfigurationError(
            f"table prefix {prefix!r} makes names that are too long; {most} characters fit"
        )
    return [f"{full}{table}" for table in TABLES]
