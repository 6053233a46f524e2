"""Reports as files: all formats agree, and no recorded text becomes markup."""

import base64
import hashlib
import json
import re
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

import pytest
import xmlschema
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from evaltap.evaluator.reports.formats import FORMATS, format_of, render, write_report
from evaltap.evaluator.reports.html.report import headline, html, tiles
from evaltap.evaluator.reports.junit import junit_xml
from evaltap.evaluator.reports.markdown import MAX_BYTES, markdown
from evaltap.evaluator.reports.model import Report, Source, Usage
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.summary import Summary
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.schemas.errors import InputError
from support.builders.cases import RESPONSE, RUBRIC, TRAJECTORY, make_case, make_tool, make_turn
from support.builders.reports import report_of, rubric_answer

XSD = xmlschema.XMLSchema(Path(__file__).parents[2] / "data/junit.xsd")
METRICS = [TRAJECTORY, RESPONSE, RUBRIC]
ATTACKS = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "</title></style><img src=x onerror=window.hacked=1>",
    "<!--<script>",
    "]]></failure>&amp;&#0;",
    "\x00\x01\x08\x1b[31m\x7f\x85\ufffe",
    "abc\u202etxt.exe\u2066\u200b\u2028",
    "| a | b |\n|---|---|\n\n# head\n<details>",
    "```\n```` [x](javascript:alert(1)) ![i](http://evil.example/p.png) @team https://evil.example",
    "{{ 7*7 }} {% raw %} ${7*7} $x$",
    "javascript:alert(1) www.evil.example a@b.example",
]
Data = TypeVar("Data")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report with each status, votes, use, differences and gaps."""
    use = {"costUsd": 0.25, "latencyMs": 1500, "inputTokens": 10, "models": ["m-1"]}
    failing = make_turn(tools=[make_tool(arguments={"order_id": "B"}), make_tool("send")])
    cases = [
        make_case("good", [make_turn(telemetry=use)], conversation=[make_turn()]),
        make_case("bad", [failing], conversation=[make_turn(answer="else")]),
        make_case("broken", conversation=[make_turn(), make_turn()]),
        make_case(
            "hidden",
            [make_turn(answer=None, capture={"finalResponse": "redacted"})],
            conversation=[make_turn()],
        ),
    ]
    answers = [rubric_answer(1, "it is named"), "garbage", rubric_answer(0, "it is not named")]

    def answer() -> str:
        return answers.pop(0) if answers else rubric_answer(1)

    return report_of(tmp_path_factory.mktemp("report"), cases, METRICS, answer=answer)


def poisoned(value: Data, text: str) -> Data:
    """Return report data with a text put before every text in it that came from outside."""
    if isinstance(value, str):
        known = {"passed", "failed", "error", "not_evaluated"}
        return value if value in known else text + value  # type: ignore[return-value] # a str is Data
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(poisoned(item, text) for item in value)  # type: ignore[return-value] # as above
    if is_dataclass(value) and not isinstance(value, type | Summary):
        kept = {"kind", "generated_at", "started_at", "ended_at"}
        changed: dict[str, Any] = {
            field.name: poisoned(getattr(value, field.name), text)
            for field in fields(value)
            if field.name not in kept
        }
        return replace(value, **changed)
    return value


def hostile(report: Report, text: str) -> Report:
    """Return the report with the text in every field, the names of metrics in its summary too."""
    summary = report.summary
    named = [replace(m, metric_name=text + m.metric_name) for m in summary.metrics]
    return replace(poisoned(report, text), summary=replace(summary, metrics=tuple(named)))


# -- JUnit -----------------------------------------------------------------------------------------


def outcomes(root: ElementTree.Element) -> Counter[str]:
    """Return how many test cases came out in which way."""
    return Counter(
        next(iter(case)).tag if len(case) else "passed" for case in root.iter("testcase")
    )


def test_junit_has_a_test_case_for_each_case_and_metric_with_its_outcome(report: Report) -> None:
    text = junit_xml(report)

    XSD.validate(text)
    root = ElementTree.fromstring(text)
    cells = Counter(cell.status for case in report.cases for cell in case.cells)
    assert outcomes(root) == {
        "passed": cells["passed"],
        "failure": cells["failed"],
        "error": cells["error"],
        "skipped": cells["not_evaluated"],
    }
    assert min(cells.values()) > 0, "each outcome must occur for this to say anything"
    for suite in root.iter("testsuite"):
        counted = outcomes(suite)
        stated = {name: int(suite.get(name, "-1")) for name in ("failures", "errors", "skipped")}
        assert [counted[name] for name in ("failure", "error", "skipped")] == [*stated.values()]
        assert int(suite.get("tests", "-1")) == len(report.cases)


def test_junit_names_case_metric_reason_calls_and_time(report: Report) -> None:
    root = ElementTree.fromstring(junit_xml(report))

    name = "tool_trajectory_avg_score"
    (suite,) = (suite for suite in root if suite.get("name") == name)
    found = {case.get("name"): case for case in suite}
    assert found["bad"].get("classname") == f"set.{name}"
    (failure,) = found["bad"]
    assert (failure.get("message") or "").startswith(
        "score 0, threshold 1: 2 tool calls, expected 1"
    )
    assert '+ send({"order_id":"A-100"})' in (failure.text or "")
    assert found["good"].get("time") == "1.500"
    assert "time" not in found["bad"].attrib
    assert "does not match" in (found["broken"][0].get("message") or "")


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_leaves_junit_valid_with_the_same_counts(report: Report, attack: str) -> None:
    text = junit_xml(hostile(report, attack))

    XSD.validate(text)
    assert outcomes(ElementTree.fromstring(text)) == outcomes(
        ElementTree.fromstring(junit_xml(report))
    )


@given(st.text(st.characters(), max_size=30))
@settings(max_examples=200)
def test_what_is_visible_may_stand_in_xml_and_hides_nothing(text: str) -> None:
    shown = visible(text)

    ElementTree.fromstring(f"<a>{shown.replace('&', '&amp;').replace('<', '&lt;')}</a>")
    assert visible(shown) == shown
    assert len(shown) >= len(text)
    if text.isprintable():
        assert shown == text


# -- Markdown --------------------------------------------------------------------------------------


def tokens(text: str) -> list[Token]:
    """Return the tokens of Markdown as GitHub would see them: tables, links, raw HTML."""
    engine = MarkdownIt("gfm-like", {"html": True, "linkify": False}).enable("table")
    flat: list[Token] = []
    for token in engine.parse(text):
        flat += [token, *(token.children or ())]
    return flat


def shape(text: str) -> list[tuple[str, str]]:
    """Return the kinds of tokens, and the raw HTML tags, without any text."""
    found = []
    for token in tokens(text):
        if token.type == "text":
            continue
        raw = token.content if token.type in ("html_block", "html_inline") else ""
        found.append((token.type, " ".join(re.findall(r"</?\w+", raw))))
    return found


def test_markdown_tells_outcome_metrics_reasons_and_the_calls_of_failed_cases(
    report: Report,
) -> None:
    text = markdown(report)

    assert text.startswith("## ❌ 4 cases: ")
    assert "| tool_trajectory_avg_score | 2 | 1 | 0 | 1 | 66.7% | 21% to 94% | 0.667 |" in text
    assert "<details><summary>set/bad: " in text
    assert '! get_order({"order_id":"B"})' in text
    assert "!     order_id: expected 'A-100', found 'B'" in text


def test_turns_lead_to_their_traces_where_a_tool_is_named(tmp_path: Path) -> None:
    turns = [make_turn("t-1", telemetry={"traceId": "ab/12"}), make_turn("t-2")]
    traced = report_of(tmp_path, [make_case("s-1", turns)], [TRAJECTORY])

    text = html(traced, trace_url=TraceUrl("https://traces.example/t/{trace_id}"))

    traces = re.findall(r'<a href="([^"]*)" rel="noreferrer">', text)
    assert traces == ["https://traces.example/t/ab%2F12"]
    assert "noreferrer" not in html(traced).partition("<body>")[2]


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_adds_no_markup_to_markdown(report: Report, attack: str) -> None:
    plain, attacked = markdown(hostile(report, "harmless ")), markdown(hostile(report, attack))

    assert shape(attacked) == shape(plain)


@given(st.text(st.sampled_from("`*_[]()<>&|~@#!$\\:/.www\nhtp-+ a1{}\"'"), max_size=40))
@settings(max_examples=150)
def test_no_text_at_all_adds_markup_to_markdown(text: str) -> None:
    from evaltap.evaluator.reports.markdown import escape

    found = [token.type for token in tokens(f"| x |\n| --- |\n| a {escape(text)} |")]

    inner = found[found.index("tbody_open") :]
    expected = ["tbody_open", "tr_open", "td_open", "inline", "text", "td_close", "tr_close"]
    kept = [kind for kind in inner if kind not in ("text_special",)]
    assert [kind for n, kind in enumerate(kept) if kind != "text" or kept[n - 1] != "text"] == [
        *expected,
        "tbody_close",
        "table_close",
    ]


def test_markdown_fits_into_a_step_summary_whatever_the_texts(report: Report) -> None:
    long = hostile(report, "`|" * 20_000)
    many = replace(long, cases=long.cases * 500, notes=())

    text = markdown(many)

    assert len(text.encode()) < MAX_BYTES < 1 << 20
    assert "more cases in the full report." in text


# -- HTML ------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Collects what a browser would make of the page, as far as it matters here."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.attributes: list[tuple[str, str]] = []
        self.scripts: dict[str, str] = {}
        self.styles: list[str] = []
        self.text: list[str] = []
        self._in = ("", "")
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(name, value or "") for name, value in attrs]
        self._in = (tag, dict(attrs).get("id") or "")

    def handle_endtag(self, tag: str) -> None:
        self._in = ("", "")

    def handle_data(self, data: str) -> None:
        tag, name = self._in
        if tag == "script":
            self.scripts[name] = self.scripts.get(name, "") + data
        elif tag == "style":
            self.styles.append(data)
        else:
            self.text.append(data)


def sha(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_page_allows_its_own_style_and_script_and_nothing_else(report: Report) -> None:
    page = Page(html(report))

    policy = next(value for name, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src '{sha(page.scripts[''])}';" in policy
    assert f"style-src '{sha(page.styles[0])}';" in policy
    assert "unsafe" not in policy
    names = [name for name, _ in page.attributes]
    assert not [name for name in names if name.startswith("on") or name == "style"]


def test_the_page_refers_to_nothing_outside_itself(report: Report) -> None:
    text = html(report)

    page = Page(text)
    targets = [v for name, v in page.attributes if name in ("src", "href", "action", "data")]
    within = {target for target in targets if target.startswith("#")}
    assert set(targets) - within == {"data:,"}
    assert "#cases" in within
    assert not re.search(r"url\(|@import|https?://", page.styles[0] + page.scripts[""])


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_text_adds_no_element_and_no_attribute_to_the_page(
    report: Report, attack: str
) -> None:
    plain, attacked = Page(html(hostile(report, "harmless "))), Page(html(hostile(report, attack)))

    assert attacked.tags == plain.tags
    assert attacked.scripts == plain.scripts
    assert visible(attack) in "".join(attacked.text)
    assert not re.search("[\x00-\x08\u202e\u2066]", html(hostile(report, attack)))


def test_what_could_not_be_scored_did_not_fail(report: Report) -> None:
    counts = report.case_counts
    assert (counts["passed"], counts["failed"], counts["error"]) == (2, 1, 1)

    (rate,) = (tile for tile in tiles(report) if tile.name == "pass rate")

    assert rate.value == "66.7 %"
    only = replace(report, case_counts={"passed": 3, "error": 1})
    assert headline(only) == "Nothing failed, but 1 of 4 cases could not be scored"


def test_the_page_tells_the_outcome_without_its_script(report: Report) -> None:
    text = " ".join(Page(html(report)).text)

    assert "1 of 4 cases did not pass, 1 could not be scored" in text
    assert "tool_trajectory_avg_score" in text
    assert "66.7 %" in text
    assert "does not match conversation length" in text
    assert "it is named" in text, "a judge's reason, within its case"


def test_every_chart_has_a_text_for_those_who_do_not_see_it(report: Report) -> None:
    page = Page(html(report))

    charts = [names for tag, names in page.tags if tag == "svg"]
    assert len(charts) > 8
    assert all("aria-label" in names or "aria-hidden" in names for names in charts)
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert "pass rate 66.7 %, 95 % interval 20.8 to 93.9 %" in labels
    assert "2 passed, 1 failed, 1 error" in labels


def entries(text: str) -> dict[str, str]:
    """Return the part of the page with each case, by the name in its link."""
    found = re.split(r'<details class="entry" id="case-([^"]*)"', text)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_the_page_holds_the_evidence_of_every_case_that_has_room(report: Report) -> None:
    found = entries(html(report))

    assert found.keys() == {f"set/{case.eval_id}" for case in report.cases}
    assert all('<section class="turn"' in entry for entry in found.values())
    assert re.findall(r'<li class="step (\w+)"', found["set/bad"]) == ["changed", "extra"]
    assert "it is named" in "".join(found.values())


def test_a_page_without_room_says_how_many_cases_are_cut(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaltap.evaluator.reports.html.report.EVIDENCE_BYTES", 10)
    bare = html(report)
    monkeypatch.setattr("evaltap.evaluator.reports.html.report.FILE_BYTES", 2_000)
    short = html(report)

    assert '<section class="turn"' not in bare
    assert "The evidence of 4 more cases is left out" in bare
    assert bare.count("Its evidence is not in this file") == 4
    assert len(entries(bare)) == 4
    assert f"{4 - len(entries(short))} more cases left out to limit the size" in short
    assert 0 < len(entries(short)) < 4


# -- all of them -----------------------------------------------------------------------------------


def test_json_holds_the_whole_report(report: Report) -> None:
    data = json.loads(render(report, "json"))

    assert (data["format"], data["version"], data["exit_code"]) == ("evaltap-report", 1, 1)
    assert [case["eval_id"] for case in data["cases"]] == [case.eval_id for case in report.cases]


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_of_nothing_can_be_written_in_every_format(name: str, tmp_path: Path) -> None:
    summary = Summary(None, 0, (), (), ())
    empty = Report(Source("x", None), "2026-11-21", summary, (), (), (), Usage(0), None, ())

    write_report(empty, tmp_path / "folder/out", name)

    assert (tmp_path / "folder/out").stat().st_size > 10


@pytest.mark.parametrize("name", FORMATS)
def test_halves_of_pairs_do_not_keep_a_report_from_being_written(
    report: Report, name: str, tmp_path: Path
) -> None:
    write_report(hostile(report, "\ud800x\udfff"), tmp_path / "out", name)

    assert (tmp_path / "out").read_text("utf-8")


def test_the_format_goes_by_the_ending_unless_it_is_given() -> None:
    endings = {name: format_of(Path(f"a.{name}")) for name in ("html", "md", "xml", "json")}

    assert sorted(endings.values()) == sorted(FORMATS)
    assert format_of(Path("a.txt"), "junit") == "junit"
    with pytest.raises(InputError, match=r"a\.pdf: unknown report format '\.pdf'"):
        format_of(Path("a.pdf"))


def luminance(color: str) -> float:
    digits = color.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ("text", "box"), ("text", "bg"), ("text", "sunken"), ("text", "hover"), ("soft", "box"),
        ("soft", "sunken"), ("soft", "bg"), ("accent", "box"), ("accent", "accent-bg"),
        ("passed", "passed-bg"), ("failed", "failed-bg"), ("crashed", "crashed-bg"),
        ("error", "error-bg"), ("not_evaluated", "not_evaluated-bg"), ("text", "error-bg"),
        ("soft", "error-bg"),
    ],
)  # fmt: skip
def test_text_stands_out_from_its_ground_in_light_and_dark(
    report: Report, scheme: int, ink: str, paper: str
) -> None:
    style = Page(html(report)).styles[0]
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", style)
    colors = {name: both[scheme] for name, *both in pairs}

    light, dark = sorted((luminance(colors[ink]), luminance(colors[paper])), reverse=True)

    assert (light + 0.05) / (dark + 0.05) >= 4.5
