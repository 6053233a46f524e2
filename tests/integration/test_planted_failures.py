"""A coding agent that follows the playbook over MCP finds every planted failure and proves its cases."""

import asyncio
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.schemas import iter_cases, read_metrics
from support.corpora.planted_failures import KINDS, Planted, planted, planted_store

EACH = 4


def parameters(*arguments: str) -> StdioServerParameters:
    """Return how a client starts `evaltap mcp` of this test run."""
    program = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    return StdioServerParameters(
        command=sys.executable,
        args=["-c", program, "mcp", *arguments],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )


async def ask(client: Client, tool: str, **given: Any) -> tuple[bool, Any]:
    """Return whether a tool answered, and the data between the marks."""
    reply = await client.call_tool(tool, given)
    (content,) = reply.content
    assert content.type == "text"
    found = re.search(r"<<<(\w+) begin [\w ]+>>>\n(.*)\n<<<\1 end", content.text, re.DOTALL)
    assert found is not None, content.text
    return not reply.is_error, json.loads(found[2])


def told(one: Planted) -> dict[str, Any]:
    """Return what somebody who knows what should have happened says of a planted failure."""
    should = one.fix[one.turn - 1]
    if one.kind == "different_answer":
        return {"turn": one.turn, "answer": should["finalResponse"]["content"]}
    calls = [{key: call[key] for key in ("name", "arguments")} for call in should["tools"]]
    return {"turn": one.turn, "calls": calls}


def as_recorded(one: Planted) -> dict[str, Any]:
    """Return what the failure itself did, as if that should have happened."""
    did = one.bug[one.turn - 1]
    calls = [{key: call[key] for key in ("name", "arguments")} for call in did["tools"]]
    answer = (did.get("finalResponse") or {}).get("content")
    return {"turn": one.turn, "calls": calls} | ({"answer": answer} if answer else {})


@pytest.mark.slow
@pytest.mark.parametrize("expected", [True, False], ids=["with-references", "without"])
def test_planted_failures_are_named_and_become_cases_that_only_the_fix_passes(
    tmp_path: Path, expected: bool
) -> None:
    cases = planted(EACH)
    db = planted_store(tmp_path, cases, expected=expected)
    path = tmp_path / "bugs.evalset.json"
    named: Counter[str] = Counter()
    refused: Counter[str] = Counter()

    async def follow() -> None:
        arguments = [str(db), "--set", str(path), "--allow-write"]
        async with Client(parameters(*arguments)) as client:
            for one in cases:
                _, found = await ask(client, "explain", case=one.eval_id)
                steps = found["steps"]
                if steps:
                    first = (steps[0]["kind"], steps[0]["turn"], steps[0]["call"])
                    named[one.kind] += first == (one.kind, one.turn, one.call)
                ok, _ = await ask(client, "draft_case", case=one.eval_id, **as_recorded(one))
                if not ok:
                    refused[one.kind] += 1
                given = {} if expected else told(one)
                ok, made = await ask(client, "draft_case", case=one.eval_id, write=True, **given)
                assert ok, (one.eval_id, made)
                assert made["written"]

    asyncio.run(follow())

    scorer = CaseScorer(read_metrics(tmp_path / "bugs.metrics.json"))
    written = {case["evalId"]: case for case in iter_cases(path)}
    fails: Counter[str] = Counter()
    passes: Counter[str] = Counter()
    for one in cases:
        case = written[one.eval_id]
        fails[one.kind] += scorer.score(case).status in (Status.FAILED, Status.CRASHED)
        fixed = scorer.score({**case, "actualConversation": one.fix})
        passes[one.kind] += fixed.status is Status.PASSED
    for kind in KINDS:
        print(
            f"{kind}: of {EACH}, named {named[kind]}, written {fails[kind]} that fail on the trace,"
            f" {passes[kind]} that pass on the fix; refused {refused[kind]} that expect the failure"
        )
    every = dict.fromkeys(KINDS, EACH)
    assert named == (every if expected else {kind: EACH for kind in ("loop", "crash")})
    assert fails == every
    assert passes == every
    # A crash fails its case whatever is expected.
    assert refused == {kind: EACH for kind in KINDS if kind != "crash"}
