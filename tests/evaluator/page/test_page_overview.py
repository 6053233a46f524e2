"""The overview agrees with the rows."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.analysis.stats.rate import Interval, Rate
from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.page import traffic
from evaltap.evaluator.page.request import PageRequest, of_the_past
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import cases, overview
from evaltap.evaluator.reports.html.charts import Point, bars, lines
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from evaltap.schemas.errors import InputError
from support.servers.page_server import served
from support.worlds.page_store import NOON, support_store
from support.worlds.shop import POLITE, landed
from support.worlds.shop import Asked as Turn

ASKED = PageRequest({}, Person("ann", "admin"), Path("x.duckdb"), now=NOON + timedelta(days=2))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with its summaries."""
    with Store(support_store(tmp_path_factory.mktemp("page"), count=40)) as found:
        Summaries(found).refresh()
        yield found


@pytest.mark.slow
def test_the_overview_of_a_file_ends_with_its_last_turn(store: Store) -> None:
    with Readers(store).reading() as reader:
        page = overview.read(reader, ASKED)

    assert page.turns == 42
    assert page.span is not None
    assert page.span.end - NOON.replace(tzinfo=None) <= timedelta(minutes=15)
    rates = {line.rate.metric: line.rate for line in page.metrics}
    counts: dict[str, int] = dict(store.rows(
        "SELECT status, count(*) FROM latest_turn_scores WHERE metric_name = 'trajectory_f1'"
        " AND eval_set_id = 'live' GROUP BY 1"
    ))  # fmt: skip
    assert {name: n for name, n in rates["trajectory_f1"].counts.items() if n} == counts
    estimated = {one.metric: one.rate for one in estimate_rates(store).rates}
    assert {name: one.rate for name, one in rates.items()} == estimated
    assert page.delivery is not None
    assert (page.delivery.recorded, page.delivery.landed, page.delivery.missing) == (42, 42, 0)
    assert page.reasons[0].of.count == max(one.of.count for one in page.reasons)
    assert page.tools[0].use.tool == "search"
    assert (page.tools[0].use.calls, page.tools[0].use.errors) == (1, 1)
    assert page.tools[0].error_href.startswith("/cases?q=tool%3Asearch+error%3A%2A+from")


def test_a_reason_leads_to_the_cases_that_have_it(store: Store) -> None:
    with Readers(store).reading(seconds=60) as reader:
        page = overview.read(reader, ASKED)
        lacking = next(one for one in page.reasons if one.of.text.endswith("missing track_parcel"))
        q = f'{lacking.q} reason:"{lacking.of.words}"'
        listed = cases.read(reader, replace(ASKED, parameters={"q": q}))

    assert lacking.of.words == "missing track_parcel"
    assert len(listed.rows) == lacking.of.count
    assert not listed.problems


def test_a_span_may_be_chosen_by_its_ends(store: Store) -> None:
    chosen = {"from": "2026-11-23T08:07", "to": "2026-11-23T10:00"}
    with Readers(store).reading() as reader:
        page = overview.read(reader, replace(ASKED, parameters=chosen))

    assert page.span is not None
    assert (page.span.start, page.span.end) == (
        datetime(2026, 11, 23, 8, 7),
        datetime(2026, 11, 23, 10),
    )
    inside = (
        "started_at >= TIMESTAMP '2026-11-23 08:07' AND started_at < TIMESTAMP '2026-11-23 10:00'"
    )
    ((turns,),) = store.rows(f"SELECT count(*) FROM latest_turns WHERE {inside}")
    assert page.turns == turns > 5
    assert page.span.buckets == 113
    metric = next(line for line in page.metrics if line.rate.metric == "trajectory_f1")
    assert "from%3A2026-11-23T08%3A07+to%3A2026-11-23T10%3A00" in metric.hrefs["failed"]


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("2026-11-23", "2026-11-22", "expected an end after the start"),
        ("yesterday", "2026-11-22", "from: expected a time in UTC"),
        ("2026-11-22", "0001-01-01", "is out of range"),
    ],
)
def test_ends_that_make_no_sense_are_refused(store: Store, start: str, end: str, says: str) -> None:
    chosen = replace(ASKED, parameters={"from": start, "to": end})
    with Readers(store).reading() as reader, pytest.raises(InputError, match=says):
        overview.read(reader, chosen)


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    st.timedeltas(timedelta(seconds=1), timedelta(days=400)),
)
def test_a_chosen_span_holds_its_ends_in_few_whole_buckets(at: datetime, length: timedelta) -> None:
    span = traffic.span_between(at, at + length)

    assert span.start <= at < at + length <= span.end
    assert span.end - span.start < length + 3 * span.width
    assert span.buckets <= 420
    assert (span.end - span.start) % span.width == timedelta()


@pytest.mark.parametrize(
    ("age", "expected"),
    [(timedelta(minutes=5), "1h"), (timedelta(hours=3), "6h"), (timedelta(hours=20), "24h"),
     (timedelta(days=40), "24h")],
)  # fmt: skip
def test_the_span_shown_first_is_no_longer_than_there_are_turns(
    age: timedelta, expected: str
) -> None:
    assert (
        traffic.shortest_with(datetime(2026, 11, 23, 10) - age, datetime(2026, 11, 23, 10))
        == expected
    )


def test_applications_to_choose_from_have_names(tmp_path: Path) -> None:
    with Store(landed(tmp_path, [Turn("Hi")], metrics=())) as store:
        store.execute("UPDATE turns SET app_name = ''")
        Summaries(store).refresh()
        with Readers(store).reading() as reader:
            page = overview.read(reader, ASKED)

    assert page.apps == ()
    assert page.turns == 1


def test_crashes_are_among_the_reasons_without_any_metric(tmp_path: Path) -> None:
    asked = [
        Turn("Where is it?", error="TimeoutError"),
        Turn("And B-7?", error="TimeoutError"),
        Turn("Hi"),
    ]
    with Store(landed(tmp_path, asked, metrics=())) as store:
        Summaries(store).refresh()
        with Readers(store).reading() as reader:
            (found,) = overview.read(reader, ASKED).reasons

    assert (found.of.metric, found.of.status, found.of.count) == ("TimeoutError", "crashed", 2)
    assert found.of.text == "it broke"
    assert not found.of.is_new  # no turn before that it could be compared with
    assert found.q.startswith('status:crashed error:"TimeoutError" from:')


@pytest.mark.slow
def test_a_reason_that_was_to_be_expected_before_and_did_not_show_is_new(tmp_path: Path) -> None:
    now = [Turn(f"now {n}", error="TimeoutError" if n < 5 else "") for n in range(10)]
    now += [Turn("now, odd", error="KeyError")]
    before = [Turn(f"before {n}", error="ValueError" if n < 5 else "") for n in range(10)]
    with Store(landed(tmp_path, [*now, *before], metrics=())) as store:
        for hours, text in ((1, "now%"), (30, "before%")):
            at = (ASKED.now - timedelta(hours=hours)).replace(tzinfo=None)
            store.execute(
                "UPDATE turns SET started_at = $at WHERE user_text LIKE $text",
                {"at": at, "text": text},
            )
        Summaries(store).refresh()
        with Readers(store).reading() as reader:
            asked = replace(ASKED, live=True, past=of_the_past())
            today = overview.read(reader, replace(asked, parameters={"range": "24h"}))
            again = overview.read(reader, replace(asked, parameters={"range": "24h"}))
            week = overview.read(reader, replace(asked, parameters={"range": "7d"}))

    assert {one.of.metric: (one.of.count, one.of.is_new) for one in today.reasons} == {
        "TimeoutError": (5, True),
        "KeyError": (1, False),  # one of eleven: ten turns before need not have had any
    }
    assert again.reasons == today.reasons
    assert not any(one.of.is_new for one in week.reasons)  # no turn before that week


@pytest.mark.slow
def test_a_failure_counts_among_the_reasons_of_the_span_of_its_turn(tmp_path: Path) -> None:
    asked = [Turn("long ago", answer="No.", session="s"), Turn("now", answer="No.", session="s")]
    with Store(landed(tmp_path, asked)) as store:
        store.execute(
            "UPDATE turns SET started_at = started_at - INTERVAL 30 DAYS"
            " WHERE user_text = 'long ago'"
        )
        assert _reasons_of(store) == {"polite": 1}


@pytest.mark.slow
def test_a_corrected_metric_leaves_no_reasons_of_the_verdicts_before(tmp_path: Path) -> None:
    path = landed(tmp_path, [Turn("Where is it?", answer="No."), Turn("And B-7?", answer="No.")])
    corrected = json.loads(json.dumps(POLITE).replace("please", "No"))
    again = tmp_path / "again.json"
    again.write_text(json.dumps([corrected, POLITE | {"metricName": "kind"}]))
    main(["score", str(path), "--metrics", str(again), "--json"])

    with Store(path) as store:
        assert _reasons_of(store) == {"kind": 2}


@pytest.mark.slow
def test_the_rate_is_of_the_version_of_a_metric_that_was_scored_last(tmp_path: Path) -> None:
    path = landed(tmp_path, [Turn("Where is it?"), Turn("And B-7?", answer="No.")])
    changed = tmp_path / "changed.json"
    for threshold in (0.9, 0.8, 0.7):
        changed.write_text(json.dumps([POLITE | {"threshold": threshold}]))
        main(["score", str(path), "--metrics", str(changed), "--json"])
        with Store(path) as store:
            Summaries(store).refresh()
            last = store.column("SELECT arg_max(metric_digest, scored_at) FROM scores")
            with Readers(store).reading() as reader:
                found = [one.rate.digest for one in overview.read(reader, ASKED).metrics]

        assert found == last


def _reasons_of(store: Store) -> dict[str, int]:
    """Return the number of failures by metric that the overview shows."""
    Summaries(store).refresh()
    with Readers(store).reading() as reader:
        return {one.of.metric: one.of.count for one in overview.read(reader, ASKED).reasons}


def test_the_pass_rate_is_drawn_beside_the_period_before_and_the_alarms(store: Store) -> None:
    chosen = {"from": "2026-11-23T10:00", "to": "2026-11-23T12:30"}
    with Readers(store).writing() as cursor:
        cursor.execute(
            "INSERT INTO alerts VALUES ('1', 'refunds', '{}', 'firing', TIMESTAMP '2026-11-23 11:15',"
            " '{}', true, now()::TIMESTAMP)"
        )
    with Readers(store).reading() as reader:
        page = overview.read(reader, replace(ASKED, parameters=chosen))

    rate = next(one for one in page.charts if one.name.startswith("Pass rate"))
    assert rate.dashed is not None
    assert "dashed: period before" in rate.value
    (mark,) = rate.marks
    assert mark.title == "alarm refunds: 11:15"
    assert mark.at == pytest.approx(0.5, abs=0.01)
    assert rate.sentence.endswith("alarm refunds: 11:15")


@pytest.mark.slow
@pytest.mark.parametrize("failing", [{2}, {2, 5, 9}, {0, 7}, set()])
def test_the_overview_has_the_rate_and_the_interval_that_estimate_prints(
    tmp_path: Path, failing: set[int]
) -> None:
    bad = "I cannot."
    asked = [
        Turn(
            "Please", answer=bad if one in failing and turn else Turn("").answer, session=f"s-{one}"
        )
        for one in range(12)
        for turn in range(1 + one % 5)
    ]
    with Store(landed(tmp_path, asked)) as store:
        Summaries(store).refresh()
        with Readers(store).reading() as reader:
            (found,) = overview.read(reader, replace(ASKED, past=of_the_past())).metrics
        ((estimated, *_), *_) = estimate_rates(store)

    assert found.rate.rate == estimated.rate


def test_nothing_in_a_span_is_no_zero(store: Store) -> None:
    later = PageRequest({"range": "1h"}, ASKED.person, ASKED.store_path, live=True, now=ASKED.now)
    with Readers(store).reading() as reader:
        page = overview.read(reader, later)

    assert page.turns == 0
    assert page.metrics == ()
    assert [tile.name for tile in page.tiles] == ["turns", "unscored"]


def test_without_summaries_nothing_is_claimed(tmp_path: Path) -> None:
    with Store(tmp_path / "x.duckdb") as empty, Readers(empty).reading() as reader:
        page = overview.read(reader, ASKED)

    assert (page.made, page.landed, page.span) == (False, False, None)


@pytest.mark.parametrize("name", traffic.SPANS)
@pytest.mark.parametrize("minute", [0, 1, 59])
def test_a_span_holds_its_end_in_its_last_bucket(name: str, minute: int) -> None:
    end = datetime(2026, 3, 29, 23, minute, 30)
    span = traffic.span_of(name, end)

    assert span.end - span.width <= end < span.end
    assert span.place(end) == span.buckets - 1
    assert span.place(span.start) == 0
    assert span.times()[0] == span.start
    assert span.before.end == span.start


def test_latencies_are_quantiles_of_each_bucket_and_of_all_to_within_a_bin() -> None:
    span = traffic.span_of("1h", datetime(2026, 3, 1, 12, 59, 30))
    first, second = span.times()[0], span.times()[7]
    with Store(":memory:") as store:
        assert traffic.latencies(store, span, "") == {}
        store.append(
            "latency_by_minute",
            [(first, "shop", 50, 90, 90.0), (first, "shop", 100, 10, 10.0), (second, "bank", 80, 1, 900.0)],
        )  # fmt: skip

        assert traffic.latencies(store, span, "shop") == {
            None: pytest.approx((1.05**50.5, 1.05**100.5)),
            first: pytest.approx((1.05**50.5, 1.05**100.5)),
        }
        assert traffic.latencies(store, span, "")[None] == pytest.approx((1.05**80.5, 1.05**80.5))


@pytest.mark.slow
def test_tiles_and_tools_of_sampled_traffic_are_of_all_traffic(tmp_path: Path) -> None:
    failed = [
        Turn("Where?", ("get_order",), error="Timeout", telemetry={"costUsd": 0.05})
        for _ in range(10)
    ]
    kept = [Turn("Where?", ("get_order",), source={"inclusionProbability": 0.1}) for _ in range(10)]
    database = landed(tmp_path, failed + kept)
    with Store(database) as store:
        store.execute(
            "UPDATE tool_calls SET error_type = 'Timeout' WHERE eval_id IN"
            " (SELECT eval_id FROM turns WHERE status = 'error')"
        )
        Summaries(store).make()
        with Readers(store).reading() as reader:
            page = overview.read(reader, ASKED)
        ((whole, failing),) = store.rows(
            "SELECT sum(w), sum(w) FILTER (status = 'error')"
            " FROM (SELECT *, 1 / coalesce(inclusion_probability, 1) AS w FROM latest_turns)"
        )

    tiles = {tile.name: (tile.value, tile.remark) for tile in page.tiles}
    assert (whole, failing) == (110, 10)
    assert tiles["turns"] == ("20", "recorded, of 110; 9.1 % of all crashed")
    assert tiles["tool errors"] == ("9.1 %", "10 of 20 recorded calls")
    (tool,) = page.tools
    assert (tool.use.calls, tool.use.errors) == (20, 10)
    assert tool.use.error_rate == pytest.approx(10 / 110)
    assert tiles["cost"][0] == "$0.60", "ten of 5 cents, a hundred of 0.1 cent"
    with served(database, tmp_path) as site:
        assert "calls and p95 of recorded turns" in site.ask("/?range=all").text


@pytest.mark.slow
def test_the_cost_of_a_turn_is_that_of_the_turns_whose_cost_is_known(tmp_path: Path) -> None:
    known, unknown = {"costUsd": 0.05}, {"costUsd": None}
    half = {"inclusionProbability": 0.5}
    turns = [Turn("a", telemetry=known, source=half), *[Turn("b", telemetry=unknown)] * 9]
    with Store(landed(tmp_path, turns)) as store:
        Summaries(store).make()
        with Readers(store).reading() as reader:
            page = overview.read(reader, ASKED)

    (cost,) = (tile for tile in page.tiles if tile.name == "cost")
    assert (cost.value, cost.remark) == (
        "$0.10",
        "$0.05 a turn (known for 2), $0.05 of it recorded",
    )


def test_calls_without_a_duration_count_and_have_no_quantile() -> None:
    span = traffic.span_of("1h", datetime(2026, 3, 1, 12, 59, 30))
    at = span.times()[3]
    with Store(":memory:") as store:
        store.append(
            "tools_by_minute",
            [(at, "shop", "refund", None, 3, 1), (at, "shop", "search", None, 50, 0),
             (at, "shop", "search", 60, 95, 0), (at, "shop", "search", 90, 5, 0),
             (at, "shop", None, 10, 1, 0)],
        )  # fmt: skip

        used = traffic.tools(store, span, "")

    assert [(one.tool, one.calls, one.errors) for one in used] == [
        ("refund", 3, 1),
        ("search", 150, 0),
        ("", 1, 0),
    ]
    assert [one.p95_ms for one in used] == [
        None,
        pytest.approx(1.05**60.5),
        pytest.approx(1.05**10.5),
    ]


def test_a_change_is_named_only_when_its_interval_says_so() -> None:
    def rate(value: float, spread: float) -> Rate:
        return Rate(value, Interval(value - spread, value + spread), 100, 100.0, "turns")

    better, unsure, worse, unknown = traffic.changes(
        [
            (rate(0.5, 0.01), rate(0.6, 0.01)),
            (rate(0.5, 0.2), rate(0.6, 0.2)),
            (rate(0.6, 0.01), rate(0.5, 0.01)),
            (None, rate(0.5, 0.1)),
        ]
    )
    assert [one and one.word for one in (better, unsure, worse)] == [
        "better",
        "no significant change",
        "worse",
    ]
    assert better is not None
    assert better.value == pytest.approx(0.1)
    assert unknown is None


def test_of_many_metrics_none_is_called_worse_by_chance_more_often_than_of_one() -> None:
    def rate(value: float) -> Rate:
        return Rate(value, Interval(value - 0.05, value + 0.05), 100, 100.0, "turns")

    slightly = (rate(0.58), rate(0.5))
    alike = (rate(0.5), rate(0.5))

    (alone,) = traffic.changes([slightly])
    among, *_ = traffic.changes([slightly, *[alike] * 29])

    assert alone is not None
    assert among is not None
    assert (alone.word, among.word) == ("worse", "no significant change")


def test_a_line_has_a_gap_where_nothing_is_known() -> None:
    at = datetime(2026, 1, 1)
    chart = lines("x", [("a", [Point(at, 1.0), Point(at, None), Point(at, 2.0)])], say="")
    assert chart.lines[0][1].count("M") == 2
    drawn = bars(
        "x", [Point(at, 3.0, part=1.0), Point(at, 0.0), Point(at, 1.0)], words="turns", say=""
    )
    assert [bar.incomplete for bar in drawn.bars] == [False, True]
    assert drawn.bars[0].part_height == pytest.approx(drawn.bars[0].height / 3, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("last", "said"), [([], True), ([Turn("Hello")], False)])
def test_a_rate_of_crashed_turns_only_says_so(tmp_path: Path, last: list[Turn], said: bool) -> None:
    database = landed(tmp_path, [Turn("Hi", error="TimeoutError"), *last])

    with served(database, tmp_path) as page:
        text = page.ask("/", role="admin").text

    assert "polite" in text
    assert ("only crashed turns" in text) == said
