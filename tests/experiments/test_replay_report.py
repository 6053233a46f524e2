"""What a replay says: as JSON, on a terminal, and in a pull request."""

import json
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from evaltap.evaluator.analysis.forecast.forecast import faithful_share, forecast
from evaltap.evaluator.analysis.forecast.model import Forecast, Options, ReplayedTurn
from evaltap.experiments.replay.report import console_lines, headline, replay_markdown
from evaltap.experiments.replay.result import ForkedTool, ReplayResult


def turns(count: int, new: bool | None, *, old: bool = True, name: str = "s") -> list[ReplayedTurn]:
    """Return sessions of one turn; None: not faithful."""
    return [
        ReplayedTurn(f"{name}{old}{new}{number}", "search", 4, 4, old, (new,), fork="cancel_order")
        for number in range(count)
    ]


BETTER = [*turns(200, True), *turns(4, True, old=False)]
WORSE = [*turns(100, True), *turns(60, False)]
UNSURE = [*turns(60, True), *turns(6, None), *turns(2, False)]


def result(**metrics: Forecast) -> ReplayResult:
    """Return a result with something of everything."""
    found = faithful_share(UNSURE)
    assert found is not None
    return ReplayResult(
        68, 68, found.effective_sessions, found.rate, metrics,
        (ForkedTool("cancel_order", 6, 0.088, {"id": 7}, "recorded with other arguments"),),
        off_script=3, invalid=1, recorded=450,
        differences={"sTrueFalse0": ('- refund({"amount": 5})', '+ refund({"amount": 500})', "```")},
        drift={
            "get_order": {
                "hits": 120, "misses": 3, "unused": 2, "real": 4, "invented": 5, "closest": 6,
                "changed_arguments": [{"difference": "id: 7, recorded 8", "count": 3}],
            }
        },
        notes=("one session could not be replayed: a picture is only known by its digest",),
    )  # fmt: skip


def test_the_data_has_the_figures_of_each_metric_by_name() -> None:
    found = result(helpful=forecast(UNSURE), polite=forecast(BETTER))
    data = found.data()

    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert (data["sessions"], data["recorded_sessions"], data["turns"]) == (68, 450, 68)
    assert data["faithful"].keys() == {"share", "interval"}
    assert data["forks"] == [
        {
            "tool": "cancel_order", "count": 6, "share": 0.088,
            "arguments": {"id": 7}, "why": "recorded with other arguments",
        }
    ]  # fmt: skip
    assert (data["off_script"], data["invalid"]) == (3, 1)
    assert data["metrics"]["helpful"] == forecast(UNSURE).data()
    assert data["verdict"] == "not_enough"
    assert found.exit_code == 3


@pytest.mark.parametrize(
    ("metrics", "verdict", "code", "said"),
    [
        ({"a": BETTER}, "not_worse", 0, "a: not worse by more than 2.0 points"),
        ({"a": BETTER, "b": BETTER}, "not_worse", 0, "all 2 metrics: not worse by more than 2.0 points"),
        ({"a": BETTER, "b": UNSURE}, "not_enough", 3, "b: not enough to tell"),
        ({"a": UNSURE, "b": WORSE}, "worse", 1, "b: worse by more than 2.0 points"),
        ({}, "not_enough", 3, "not enough to tell: no metric"),
    ],
)  # fmt: skip
def test_the_worst_metric_gives_the_verdict(
    metrics: dict[str, list[ReplayedTurn]], verdict: str, code: int, said: str
) -> None:
    found = result(**{name: forecast(rows) for name, rows in metrics.items()})

    assert (found.verdict, found.exit_code) == (verdict, code)
    assert headline(found) == said
    assert ("✅" in replay_markdown(found).splitlines()[0]) == (code == 0)


def test_a_margin_of_nothing_is_not_worded_as_one() -> None:
    found = result(a=forecast(WORSE, Options(margin=0.0)))

    assert headline(found) == "a: worse"


def test_not_enough_to_tell_has_no_green_sign_anywhere() -> None:
    text = replay_markdown(result(helpful=forecast(UNSURE)))

    assert "✅" not in text
    assert text.startswith("## ⚠️ helpful: not enough to tell\n")
    assert "fewer forks would help, above all at cancel" in text


def test_a_pull_request_shows_each_figure_under_its_own_name() -> None:
    text = replay_markdown(result(helpful=forecast(UNSURE)))
    tables = [one for one in MarkdownIt().enable("table").parse(text) if one.type == "table_open"]

    assert "| metric | old | new, faithful | difference | estimate | bounds | verdict |" in text
    assert len(tables) == 3, "figures, forks, drift"
    assert "68 sessions of 450" in text
    assert "3 turns off script; 1 turn invalid" in text
    assert "### Newly failing (2)" in text
    assert "````diff\n- refund" in text, "no recorded line ends the block"
    assert "id: 7, recorded 8 (3x)" in text
    assert "recorded with other arguments" in text


def test_recorded_text_is_no_markup_and_no_escape_sequence() -> None:
    hostile = "<img src=x> | ✅ \x1b[2J @all"
    rows = [replace(row, session=hostile + row.session) for row in WORSE]
    found = replace(
        result(**{hostile: forecast(rows)}),
        forks=(ForkedTool(hostile, 1, 1.0, {hostile: hostile}, hostile),),
        drift={hostile: {"hits": 1}},
        notes=(hostile,),
    )

    text, lines = replay_markdown(found), list(console_lines(found))

    assert "<img" not in text
    assert "\x1b" not in text
    assert not any("\x1b" in line for line in lines)


@pytest.mark.slow
def test_a_long_list_is_cut_and_counted() -> None:
    rows = turns(3000, False, name="session-with-quite-a-long-name-")
    found = result(helpful=forecast(rows))
    found = replace(
        found, differences={row.session: ("- old_call({})", "+ new_call({})") for row in rows}
    )

    text, lines = replay_markdown(found), list(console_lines(found))

    assert len(text.encode()) < 62_000
    assert "more\n" in text
    assert len(lines) < 100
    assert any("2,980 more" in line for line in lines)


def test_the_terminal_shows_the_verdict_first_and_what_it_rests_on() -> None:
    lines = list(console_lines(result(helpful=forecast(UNSURE))))

    assert lines[0] == "NOT ENOUGH TO TELL: helpful"
    assert lines[1] == "  68 sessions of 450, 68 turns"
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for name in ("old", "new, faithful", "estimate", "bounds"):
        assert f"\n  {name} " in text
    assert '    + refund({"amount": 500})' in lines
    assert "cancel_order  6x, 8.8% of the traffic" in text
    whole = " ".join(text.split())
    assert (
        "get_order 120 answered, 3 without a recorded result, 4 run for real, 5 invented,"
        " 6 as the closest recorded call, 2 recorded calls not made"
    ) in whole


def test_without_an_estimate_it_says_why() -> None:
    rows = [*turns(90, True), *(replace(row, first_tool="renamed") for row in turns(20, None))]
    half = [*turns(10, True), *turns(20, None)]

    lines = " ".join(console_lines(result(helpful=forecast(rows))))
    others = " ".join(console_lines(result(helpful=forecast(half))))

    assert "no estimate: nothing speaks for 18.2% of the traffic: sessions with renamed" in lines
    assert "no estimate: 66.7% of the traffic was not replayed faithfully" in others


def test_sessions_chosen_by_their_outcome_are_listed_and_not_forecast() -> None:
    rows = turns(30, True, old=False)
    found = result(helpful=forecast(rows, Options(chosen_by_outcome=True)))

    lines = list(console_lines(found))

    assert found.verdict == "not_enough"
    assert found.data()["metrics"]["helpful"]["new"] is None
    assert not any(line.startswith(("  bounds", "  old")) for line in lines)
    assert "newly passing (30)" in lines
    assert any("not chosen by how they ended" in line for line in lines)
