"""`evaltap.api`: what programs and notebooks call, on real stores, frames and agents."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from evaltap.api import RegressionError, Rules, Run, Store, evaluate
from evaltap.cli.main import main
from evaltap.evaluator import Turn
from evaltap.evaluator.store.database import Store as Writer
from evaltap.evaluator.store.errors import NotReadingError, StoreError
from evaltap.evaluator.store.remote.server import served
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.formats.case import EvalCase
from support.builders.cases import make_case, make_records, make_tool, make_turn, write_log

CALLS = {"metricName": "trajectory_exact", "threshold": 1}
HOSTILE = "<script>alert(1)</script>"


def made(eval_id: str, *, calls: bool = True, answer: str = "done") -> dict[str, Any]:
    """Return a recorded case that expects one call, and made it or not."""
    turn = make_turn(answer=answer, tools=[make_tool()] if calls else [])
    return make_case(eval_id, [turn], conversation=[make_turn()])


def says_done(turn: Turn, expected: Turn) -> bool:
    return "done" in (turn.final_text or "")


async def says_later(turn: Turn, expected: Turn) -> bool:
    return says_done(turn, expected)


@pytest.mark.slow
def test_lists_of_dicts_models_lines_and_frames_are_scored_alike(tmp_path: Path) -> None:
    pandas = import_module("pandas")
    cases = [made("good"), made("bad", calls=False)]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in cases))

    runs = [
        evaluate(given, [CALLS, says_done])
        for given in (
            path,
            str(path),
            [path],
            cases,
            [EvalCase.model_validate(one) for one in cases],
            pandas.DataFrame(cases),
            pyarrow.Table.from_pylist(cases),
        )
    ]

    for run in runs:
        assert [(one.metric_name, one.passed, one.failed) for one in run.summary.metrics] == [
            ("trajectory_exact", 1, 1),
            ("says_done", 2, 0),
        ]


def test_rows_of_a_frame_become_cases_by_their_columns() -> None:
    polars = import_module("polars")
    frame = polars.DataFrame({"question": ["hi", "ho"], "reply": ["done", "what?"]})

    run = evaluate(frame, [says_done], columns={"input": "question", "output": "reply"})

    assert run.scores().polars()["status"].to_list() == ["passed", "failed"]


def test_a_name_alone_is_a_metric_that_only_a_perfect_score_passes() -> None:
    run = evaluate([made("good"), made("bad", calls=False)], ["trajectory_exact"])

    assert [row["threshold"] for row in run.scores()] == [1.0, 1.0]
    assert not run.passed
    assert evaluate([made("good")], ["trajectory_exact"]).passed


@pytest.mark.parametrize(
    ("cases", "options", "message"),
    [
        ([], {}, "an empty list"),
        (7, {}, "found int; expected paths, a data frame"),
        ([7], {}, r"cases\[0\]: found int"),
        ([made("a")], {"runs": 5}, "runs: only with an agent"),
        (["no.jsonl"], {}, "no.jsonl"),
        (pyarrow.table({"input": []}), {}, "has no cases"),
        ([{"question": "hi"}], {"columns": {"inptu": "question"}}, "inptu"),
        ([{"evalId": "a", "actualConversation": 7}], {}, "actualConversation"),
        ([made("a")], {"metrics": [7]}, "metrics: found int"),
        ([made("a")], {"metrics": []}, "metrics: found an empty list"),
        (
            [made("a")],
            {"metrics": says_done},
            "metrics: found function; expected a file, or a list",
        ),
        ([made("a")], {"metrics": [says_later]}, "says_later: an async function"),
        ([made("a")], {"agent": "no:body", "runs": 0}, "runs: found 0; expected a whole number"),
        (
            [made("a")],
            {"agent": "no:body", "runs": "5"},
            "runs: found '5'; expected a whole number",
        ),
        ([made("a")], {"agent": "no:body", "concurrency": -1}, "concurrency: found -1"),
        ([made("a")], {"agent": "no:body", "turn_seconds": 0}, "turn_seconds: found 0"),
        (
            [made("a")],
            {"agent": "no:body", "tools": "x"},
            "tools: found 'x'; expected a MockChoice",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused(
    cases: object, options: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"metrics": [CALLS], **options}
    with pytest.raises((InputError, ConfigurationError), match=message):
        evaluate(cases, **given)


def agent(messages: list[dict[str, Any]]) -> str:
    return "done"


def lazy(messages: list[dict[str, Any]]) -> str:
    return "later"


def compared(head: Any, base: Any) -> tuple[Run, Run]:
    cases = [{"evalId": f"c-{n}", "conversation": [make_turn(f"t-{n}")]} for n in range(6)]
    ran = [
        evaluate(cases, [says_done], agent=one, runs=5, version=name)
        for one, name in ((base, "base"), (head, "head"))
    ]
    return ran[1], ran[0]


@pytest.mark.slow
def test_an_agent_that_got_worse_raises_with_the_cases_that_fail_now(tmp_path: Path) -> None:
    head, base = compared(lazy, agent)
    base.write_baseline(tmp_path / "baseline.json")

    for given in (base, tmp_path / "baseline.json"):
        found = head.compare(given)

        assert found.verdict == "regression"
        assert found.data()["exit_code"] == 1
        with pytest.raises(RegressionError, match=r"(?s)WORSE.*newly failing \(6\)"):
            found.raise_if_regressed()
    assert "+ answer: later" in repr(head.compare(base))
    assert head.outcome is not None
    assert head.outcome.scored == 30


@pytest.mark.slow
def test_an_agent_has_not_passed_that_did_not_run_everywhere_or_crashed_at_its_end() -> None:
    class Loses:
        def __enter__(self) -> Any:
            return agent

        def __exit__(self, *_: object) -> None:
            raise OSError("it could not be kept")

    def costs(messages: list[dict[str, Any]], turn: Any) -> str:
        turn.model("m", cost_usd=1.0)
        return "done"

    cases = [{"input": "hi", "output": "done"} for _ in range(3)]
    crashed = evaluate(cases, [says_done], agent=Loses)
    stopped = evaluate(cases, [says_done], agent=costs, budget_usd=1.0, concurrency=1)

    assert (crashed.passed, stopped.passed) == (False, False)
    assert crashed.outcome
    assert stopped.outcome
    assert (crashed.outcome.crashed, stopped.outcome.scored) == (3, 1)
    assert evaluate(cases, [says_done], agent=agent).passed


def test_a_case_that_asks_or_expects_something_else_is_not_compared(tmp_path: Path) -> None:
    def run(wanted: str) -> Run:
        cases = [made("edited") | {"conversation": [make_turn(answer=wanted)]}, made("same")]
        return evaluate(cases, ["final_response_avg_score"])

    base, head = run("done"), run("something else")
    base.write_baseline(tmp_path / "baseline.json")

    for one in (base, tmp_path / "baseline.json"):
        found = head.compare(one)
        assert found.verdict != "regression"
        assert found.data()["changed"] == ["edited"]


@pytest.mark.slow
def test_no_change_and_no_proof_do_not_raise() -> None:
    head, base = compared(agent, agent)

    head.compare(base).raise_if_regressed()
    head.compare(base, Rules(max_drop=0.01)).raise_if_regressed()

    assert head.compare(base, Rules(max_drop=0.01)).verdict == "inconclusive"


def test_a_notebook_shows_metrics_and_failing_cases_without_running_recorded_text() -> None:
    run = evaluate([made("good"), made(HOSTILE, calls=False, answer=HOSTILE)], [CALLS, says_done])

    shown = run._repr_html_()

    for text in (shown, repr(run)):
        assert "50.0% (9% to 91%)" in text
        assert "get_order(" in text
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    table = run.scores()._repr_html_()
    assert "&lt;script&gt;" in table
    assert "<script>" not in table


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    path = folder / "x.duckdb"
    log = folder / "log.db"
    write_log(log, make_records([made("good"), made("bad", calls=False)]))
    (folder / "metrics.json").write_text(json.dumps([CALLS | {"metricName": "trajectory_no_loop"}]))
    metrics = ["--metrics", str(folder / "metrics.json")]
    assert main(["consume", "--log", str(log), "--db", str(path), *metrics, "--until-idle"]) == 0
    return path


@pytest.mark.slow
def test_a_store_is_read_as_frames_also_while_another_process_holds_it(db: Path) -> None:
    polars = import_module("polars")
    store = Store.open(db)

    def read() -> list[Any]:
        cases = store.cases("status:passed sort:oldest", where="tool_count >= 0")
        return [
            cases.df().to_dict("list") | {"tools": None, "verdicts": None, "failed": None},
            cases.arrow().schema,
            store.sql("SELECT metric_name, passed, now() - now() AS none FROM v_pass_rate").rows,
            polars.DataFrame(store.sql("FROM latest_turns ORDER BY ALL")).drop("tags").rows(),
            store.case("good"),
            repr(store.run(store.sql("SELECT run_id FROM runs").rows[0][0])),
        ]

    free = read()
    with Writer(db) as held, served(held):
        assert str(read()) == str(free)
    with Writer(db):
        pass  # nothing that was read keeps the file open
    assert store.cases("status:passed").df()["eval_id"].tolist() == ["bad", "good"]
    assert len(store.cases(limit=1)) == 1


@pytest.mark.slow
def test_an_empty_result_keeps_its_types(db: Path) -> None:
    store = Store.open(db)

    empty = store.cases("status:failed")

    assert len(empty) == 0
    assert empty.arrow().schema == store.cases().arrow().schema
    assert str(store.sql("SELECT 1::DOUBLE AS x WHERE false").df()["x"].dtype) == "float64"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("DELETE FROM turns", NotReadingError, "DELETE statement"),
        ("SELECT 1; SELECT 2", InputError, "found 2 statements"),
        ("SELECT nothing", InputError, "nothing"),
        ("SELECT 1 AS a, 2 AS a", InputError, "several columns are named 'a'"),
    ],
)
def test_a_statement_that_is_no_single_query_is_refused(
    db: Path, statement: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Store.open(db).sql(statement)


@pytest.mark.parametrize(
    ("method", "package"), [("df", "pandas"), ("polars", "polars"), ("arrow", "pyarrow")]
)
def test_a_missing_package_is_named(
    db: Path, monkeypatch: pytest.MonkeyPatch, method: str, package: str
) -> None:
    table = Store.open(db).cases()
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConfigurationError, match=f"pip install {package}"):
        getattr(table, method)()


def test_a_negative_limit_is_refused_rather_than_answered_with_no_case(db: Path) -> None:
    with pytest.raises(InputError, match="limit: found -1; expected 0 or more"):
        Store.open(db).cases(limit=-1)


def test_a_file_that_is_no_store_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none\.duckdb"):
        Store.open(tmp_path / "none.duckdb")
