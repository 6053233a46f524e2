"""The list of cases and the page of one, read without a server."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.language import SORTS, parse_filter
from evaltap.evaluator.analysis.filters.listing import around, list_page
from evaltap.evaluator.analysis.summaries.summaries import Summaries, indexed_case
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.page.rendering import as_json
from evaltap.evaluator.page.request import PageRequest, problem_of
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.statements import written_out
from evaltap.evaluator.page.views import case, cases
from evaltap.evaluator.reports.diff_lines import lines_of
from evaltap.evaluator.reports.figures import typeset
from evaltap.evaluator.reports.html.case import TurnVerdict
from evaltap.evaluator.reports.model import Call, Step
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import TooSlowError
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.readers import Readers
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import iter_cases
from support.builders.reports import score_into, write_cases
from support.servers.page_server import served
from support.worlds.page_store import GENEROUS, NOON, long_session, support_cases, support_store
from support.worlds.shop import Asked, landed


@pytest.fixture(scope="module", params=["rows", "summaries"])
def reader(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreReader]:
    """A reader of a store with 31 cases, with and without summaries."""
    path = support_store(tmp_path_factory.mktemp("page"), count=30)
    with Store(path) as store:
        if request.param == "summaries":
            Summaries(store).refresh()
        with Readers(store).reading(seconds=120) as found:
            yield found


def asked(**parameters: str) -> PageRequest:
    return PageRequest(parameters, Person("ann", "admin"), Path("x.duckdb"), now=NOON)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sort", "size"),
    [("newest", 50), ("worst", 1), *((sort, size) for sort in SORTS for size in (7, 31))],
)
def test_pages_hold_every_case_once_forwards_and_backwards(
    reader: StoreReader, sort: str, size: int
) -> None:
    choice = Choice(parse_filter(f"sort:{sort}"))
    all_ids = [one.eval_id for one in list_page(reader, choice, 100).cases]

    pages = [list_page(reader, choice, size)]
    while pages[-1].next:
        pages.append(list_page(reader, choice, size, after=pages[-1].next))
    back = [pages[-1]]
    while back[-1].previous:
        back.append(list_page(reader, choice, size, before=back[-1].previous))

    assert [one.eval_id for page in pages for one in page.cases] == all_ids
    assert all(page.matched == 31 for page in pages)
    assert [page.cases for page in reversed(back)] == [page.cases for page in pages]


@pytest.mark.parametrize(
    "mark",
    [
        "x",
        "e30",
        "WzEsMl0",
        "WyJhIiwiYiIsImMiLCJkIl0",
        "🙂",
        "WzEwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAsICJhIiwgImIiLCAiYyJd",
    ],
)
def test_a_mark_that_makes_no_sense_begins_anew(reader: StoreReader, mark: str) -> None:
    assert len(cases.read(reader, asked(after=mark)).rows) == 31


@pytest.mark.parametrize(
    "written",
    [
        "status:failed sort:worst",
        "",
        "sort:oldest",
        "sort:cost",
        "refund",
        "tool:* sort:score",
    ],
)
def test_the_list_goes_on_from_a_case(reader: StoreReader, written: str) -> None:
    choice = Choice(parse_filter(written))
    ids = list_page(reader, choice, 50).cases
    assert ids
    for place in {*range(0, len(ids), 5), len(ids) - 1}:
        one = ids[place]
        key = one.app, one.eval_set_id, one.eval_id
        before, after, number, of = around(reader, choice, key, indexed_case(reader, key))
        assert (number, of) == ((place + 1, len(ids)) if choice.filter.terms else (0, 0))
        assert (before and before[2]) == (ids[place - 1].eval_id if place else None)
        assert (after and after[2]) == (ids[place + 1].eval_id if place + 1 < len(ids) else None)


def test_a_row_shows_the_scores_that_did_not_pass_and_counts_the_others(
    reader: StoreReader,
) -> None:
    page = cases.read(reader, asked(sort="worst"))
    by_id = {row.case.eval_id: row.case for row in page.rows}

    generous = by_id[GENEROUS]
    (verdict,) = generous.verdicts
    assert (verdict.metric, verdict.status) == ("trajectory_f1", "failed")
    assert verdict.score == pytest.approx(5 / 6)
    assert (generous.passed, generous.not_evaluated) == (2, 0)
    reasons = {row.case.eval_id: row.reason for row in page.rows}
    assert "changed refund (amount: expected 10, found 100)" in reasons[GENEROUS]
    assert reasons["s-005"].startswith("the run failed")
    crashed = by_id["s-005"]
    assert [one.status for one in crashed.verdicts] == ["crashed", "crashed"]
    assert crashed.failed == ("final_response_avg_score", "trajectory_f1")


def test_a_search_that_took_too_long_leads_to_shorter_spans() -> None:
    late = TooSlowError("x.duckdb: not read within 10 s; narrow the query")

    shown = problem_of(late, "/cases", asked(q="refund late"))
    already = problem_of(late, "/cases", asked(q="refund since:30d"))

    assert shown.status == 504
    assert shown.data.narrower[1] == ("last 7 days", "/cases?q=refund+late+since%3A7d")
    assert not already.data.narrower
    assert not problem_of(late, "/runs", asked()).data.narrower


def test_what_is_understood_of_a_filter_stays(reader: StoreReader) -> None:
    page = cases.read(reader, asked(q='stats:failed tool:refund "late'))

    assert len(page.problems) == 2
    assert "did you mean 'status'?" in page.problems[0]
    assert [row.case.eval_id for row in page.rows] == [GENEROUS]
    assert page.chips[0].without == 'tool:refund "late'


def test_chips_tell_which_term_to_drop(reader: StoreReader) -> None:
    page = cases.read(reader, asked(q="tool:refund -status:failed"))

    assert not page.rows
    assert [(chip.text, chip.without, chip.matched) for chip in page.chips] == [
        ("tool refund", "-status:failed", 23),
        ("not status failed", "tool:refund", 1),
    ]


def test_the_step_that_went_wrong_is_on_the_page(reader: StoreReader) -> None:
    page = case.read(reader, asked(), ("shop", "live", GENEROUS))

    assert page is not None
    second = page.turns[1]
    assert [(line.kind, line.name, line.expected_place, line.actual_place) for line in second.lines] == [
        ("same", "get_order", 1, 1),
        ("left_out", "search", None, 2),
        ("changed", "refund", 2, 3),
        ("missing", "notify_user", 3, None),
    ]  # fmt: skip
    refund = second.lines[2]
    assert [(one.path, one.expected, one.actual, one.distance) for one in refund.differing] == [
        ("amount", "10", "100", "+90")
    ]
    assert [one.name for one in refund.arguments] == ["currency", "order_id"]
    assert refund.sentence == (
        "expected call 2, refund, is actual call 3; amount: expected 10, found 100"
    )
    assert second.verdicts[0][0] == "trajectory_f1"
    assert page.differences == 2
    assert page.feedback[0]["comment"] == "I got far too much."


@pytest.mark.slow
def test_the_evaluator_not_the_name_of_a_metric_says_whether_calls_are_compared(
    tmp_path: Path,
) -> None:
    retool = {"metricName": "retool", "evaluatorName": "run_succeeded", "threshold": 1}
    order = {"metricName": "order_of_calls", "evaluatorName": "trajectory_in_order", "threshold": 1}
    path = support_store(tmp_path, cases=support_cases(3))
    with Store(path) as store:
        score_into(store, write_cases(tmp_path, support_cases(3)), [retool, order])
        with Readers(store).reading(seconds=120) as found:
            page = case.read(found, asked(), ("shop", "live", "s-000"))

    assert page is not None
    compared = {one.cell.metric_name for one in page.verdicts if one.compare_href}
    assert {"order_of_calls", "trajectory_f1"} <= compared
    assert "retool" not in compared


def test_a_crash_is_told_once_whatever_the_metrics(reader: StoreReader) -> None:
    page = case.read(reader, asked(), ("shop", "live", "s-005"))

    assert page is not None
    (turn,) = page.turns
    assert turn.evidence.error == "TimeoutError: the model did not answer"
    assert {(one.status, one.reason) for one in turn.verdicts} == {("crashed", "")}


def test_a_failed_call_has_a_sign_of_its_own_where_nothing_was_expected() -> None:
    made = Call("refund", '{"amount": 100}', error="ValueError: above the limit")
    (line,) = lines_of([Step("made", None, made)])

    assert (line.sign, line.word) == ("!", "failed")


def test_votes_are_by_rubric_and_turn(reader: StoreReader) -> None:
    page = case.read(reader, asked(), ("shop", "live", GENEROUS))

    assert page is not None
    (judged,) = [one for one in page.verdicts if one.cell.metric_name == "llm_rubric_response"]
    assert [
        (one.rubric_id, one.turn and one.turn.place, len(one.votes)) for one in judged.rubrics
    ] == [
        ("names-order", 1, 5),
        ("no-promise", 1, 5),
        ("names-order", 2, 5),
        ("no-promise", 2, 5),
    ]


@pytest.mark.slow
def test_a_long_case_is_shown_in_ranges_of_turns_that_name_the_failing_ones(tmp_path: Path) -> None:
    path = support_store(tmp_path, cases=[long_session(75, wrong=[40, 70])])
    key = ("shop", "live", "s-long")
    with Store(path) as store, Readers(store).reading(seconds=120) as found:
        first = case.read(found, asked(), key)
        middle = case.read(found, asked(turn="44"), key)
        beyond = case.read(found, asked(turn="1000"), key)

    assert first is not None
    assert middle is not None
    assert beyond is not None
    assert (first.turn_count, [turn.place for turn in first.turns]) == (75, [*range(1, 31)])
    assert [turn.place for turn in middle.turns] == [*range(31, 61)]
    assert [turn.place for turn in beyond.turns] == [*range(61, 76)]
    assert [(one.first, one.last, one.shown) for one in middle.ranges] == [
        (1, 30, False), (31, 60, True), (61, 75, False),
    ]  # fmt: skip
    elsewhere = "/case?set=live&id=s-long&app=shop&turn=70#t70"
    assert [one.failing for one in middle.ranges] == [(), ((40, "#t40"),), ((70, elsewhere),)]
    assert [turn.place for turn in middle.turns if turn.verdicts] == [40]
    (trajectory,) = [one for one in middle.verdicts if one.cell.metric_name == "trajectory_f1"]
    assert trajectory.turns == ((40, "#t40"), (70, elsewhere))
    (judged,) = [one for one in middle.verdicts if one.cell.metric_name == "llm_rubric_response"]
    assert {one.turn.place for one in judged.rubrics if one.turn} == {*range(31, 61)}
    assert {one.folded for one in judged.rubrics} == {True}  # sixty that were met
    assert middle.turns[0].evidence.user == "Where is order A-31?"
    assert len(middle.turn_provenance) == 30
    assert not first.notes


def test_a_case_that_there_is_not(reader: StoreReader) -> None:
    assert case.read(reader, asked(), ("shop", "live", "nobody")) is None
    shown = case.view(reader, asked(id="nobody"))
    assert shown.status == 404


@pytest.mark.slow
def test_ids_that_differ_by_spaces_are_different_cases(tmp_path: Path) -> None:
    one, *_ = support_cases(1)
    made = [one | {"evalId": name} for name in ("s-1", "s-1 ", " s-1")]
    path = support_store(tmp_path, cases=made)
    with Store(path) as store, Readers(store).reading(seconds=60) as reader:
        hrefs = [row.href for row in cases.read(reader, asked(q="set:live")).rows]
        opened = [
            case.view(reader, asked(**dict(parse_qsl(urlsplit(href).query)))) for href in hrefs
        ]
        missing = case.view(reader, asked(app="shop", set="live", id="s-1  "))

    assert sorted(one.data.key[2] for one in opened) == [" s-1", "s-1", "s-1 "]
    assert (missing.status, missing.data.message.split(" in ")[0]) == (
        404,
        "There is no case 's-1  '",
    )


def test_a_query_is_shown_with_its_values() -> None:
    assert written_out("SELECT $a, $b, $c", {"a": "it's", "b": None, "c": [1, "x"]}) == (
        "SELECT 'it''s', NULL, [1, 'x']"
    )
    assert written_out("SELECT ?, ?", [1, "?"]) == "SELECT 1, '?'"


def test_turns_lead_to_their_traces_where_a_tool_is_named(reader: StoreReader) -> None:
    tool = TraceUrl("https://traces.example/t/{trace_id}?from=evaltap")
    wanted = replace(asked(set="live", id=GENEROUS, app="shop"), trace_url=tool)

    turns = case.view(reader, wanted).data.turns

    assert turns[0].trace_href == "https://traces.example/t/trace-1?from=evaltap"
    assert tool.of(None) == ""
    assert tool.of("a/b?c#d") == "https://traces.example/t/a%2Fb%3Fc%23d?from=evaltap"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("javascript:alert('{trace_id}')", "expected an http or https address"),
        ("traces.example/{trace_id}", "expected an http or https address"),
        ("https://{trace_id}.example/", "expected {trace_id} in its path"),
        ("https://traces.example/", "expected {trace_id} in its path"),
        ("http://[{trace_id}/", "expected an http or https address"),
    ],
)
def test_a_template_that_leads_to_no_trace_is_refused(template: str, says: str) -> None:
    with pytest.raises(InputError, match=f"--trace-url .*{says}"):
        TraceUrl(template)


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("93.8% -> 75.0%, -18.8 points", "93.8\u00a0% → 75.0\u00a0%, −18.8 points"),  # noqa: RUF001
        ("s-100 of 2026-11-23", "s-100 of 2026-11-23"),
        ("(95 %: -0.1 to +0.3)", "(95 %: −0.1 to +0.3)"),  # noqa: RUF001
    ],
)
def test_figures_of_the_command_line_are_set_as_those_of_the_page(text: str, page: str) -> None:
    assert typeset(text) == page


@pytest.mark.parametrize("text", ["A-100", "half of a pair: \ud800"])
def test_the_twin_names_the_parts_of_everything(text: str) -> None:
    data = {"turns": (TurnVerdict("f1", "failed", text), ("shop", "live", "s-1")), 1: {}}

    found = json.loads(as_json(data))

    verdict = {"metric": "f1", "status": "failed", "reason": text}
    assert found == {"turns": [verdict, ["shop", "live", "s-1"]], "1": {}}


@pytest.mark.slow
def test_references_that_did_not_land_are_compared_with(tmp_path: Path) -> None:
    cases_ = [one for one in support_cases(3) if one["evalId"] == "s-000"]
    landed = [one | {"conversation": [None]} for one in cases_]
    expected = write_cases(tmp_path, cases_, "references.jsonl")
    path = support_store(tmp_path / "store", cases=landed)
    key = ("shop", "live", "s-000")
    given = replace(asked(), references=References.of(iter_cases(expected), "eval_id"))
    with Store(path) as store, Readers(store).reading(seconds=120) as found:
        alone, compared = case.read(found, asked(), key), case.read(found, given, key)

    assert alone is not None
    assert compared is not None
    assert [line.kind for line in alone.turns[0].lines] == ["made"]
    assert [line.kind for line in compared.turns[0].lines] == ["same", "missing"]


@pytest.mark.slow
def test_a_turn_says_that_it_waits_and_that_its_answer_is_empty(tmp_path: Path) -> None:
    waits = Asked("May I?", answer="", source={"closeReason": "paused"})
    store = landed(tmp_path, [waits, Asked("Hello?")], metrics=[])

    with served(store, tmp_path) as page:
        first, second = (page.ask(f"/case?app=shop&set=live&id=s-{n}").text for n in (0, 1))

    assert "<span>paused</span>" in first
    assert '<p class="none">empty</p>' in first
    assert "paused" not in second
    assert '<p class="none">empty</p>' not in second
