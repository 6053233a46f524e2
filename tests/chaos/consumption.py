"""A log to consume, the ledger of its content, and the evidence of the result."""

from pathlib import Path

import orjson

from chaos.checker import Finding, check
from chaos.evidence import Evidence, Ledger, Turn, ends_of, read_log_file, read_store_file
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import (
    RESPONSE,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)

TURNS = 3


def write_input(folder: Path, sessions: int, *, poison: tuple[WireRecord, ...] = ()) -> Ledger:
    """Write three turns for each session, interleaved; in every third session one of them is wrong."""
    cases, ledger = [], Ledger()
    for turn in range(TURNS):
        for session in range(sessions):
            answer = f"answer {session}"
            actual = make_turn(f"t-{turn}", answer=answer)
            wrong = session % 3 == 0 and turn == 1
            other = actual | {"tools": [make_tool(arguments={"order_id": "other"})]}
            cases.append(
                make_case(f"s-{session}", [actual], conversation=[other if wrong else actual])
            )
            scores = {
                str(TRAJECTORY["metricName"]): "failed" if wrong else "passed",
                str(RESPONSE["metricName"]): "passed",
            }
            ledger.turns.append(Turn(f"s-{session}", f"t-{turn}", answer, tools=1, scores=scores))
    write_log(folder / "log.db", [*make_records(cases), *poison])
    (folder / "metrics.json").write_bytes(orjson.dumps([TRAJECTORY, RESPONSE]))
    return ledger


def look(folder: Path, ledger: Ledger, *, drained: bool = True) -> list[Finding]:
    """Return what the checker finds in a folder after the consumer has ended."""
    log = read_log_file(folder / "log.db")
    evidence = Evidence(
        ledger,
        log=log,
        tables=read_store_file(folder / "x.duckdb"),
        ends=ends_of(log),
        drained=drained,
    )
    return check(evidence)
