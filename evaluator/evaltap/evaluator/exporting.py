"""Landed cases as eval cases again: the latest revision of each, with its latest turns in order."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from evaltap.evaluator.pending import assemble
from evaltap.evaluator.store import Store, sql
from evaltap.schemas.case import CaseData
from evaltap.schemas.errors import InputError


def landed_cases(store: Store) -> Iterator[CaseData]:
    """Yield every landed case, in the order in which the cases first landed."""
    for chunk in store.stream(sql("landed_cases")):
        for header, actual, expected in chunk:
            yield assemble(header, actual, expected)


def write_json_lines(path: Path, cases: Iterable[CaseData]) -> int:
    """Write one case a line; return how many.  Memory does not grow with them."""
    temporary = path.with_name(path.name + ".tmp") if path.is_file() or not path.exists() else path
    count = 0
    try:
        with temporary.open("wb") as file:
            for case in cases:
                file.write(orjson.dumps(case, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
        if temporary != path:
            temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return count
