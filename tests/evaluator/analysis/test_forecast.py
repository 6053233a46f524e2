"""Forecasts of a replay: the worked example, the oracle's figures, and what must hold for any replay."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.analysis.forecast.draw import draw_of, draw_sessions
from evaltap.evaluator.analysis.forecast.forecast import (
    ENOUGH_SESSIONS,
    NO_TOOL,
    cells_of,
    faithful_share,
    forecast,
)
from evaltap.evaluator.analysis.forecast.machine import Item, Turn, calculate
from evaltap.evaluator.analysis.forecast.model import Forecast, Options, ReplayedTurn
from evaltap.evaluator.analysis.stats.estimate import estimate_items
from support.proofs.forecast_oracle import ForecastOracle


def sessions(
    count: int, p1: float, old: Sequence[int], new: Sequence[int | None], tool: str = "search"
) -> list[ReplayedTurn]:
    """Return alike sessions, all replayed; None is a turn that is not faithful."""
    return [
        ReplayedTurn(
            f"{tool}-{p1:g}-{old}-{new}-{number}", tool, 1 / p1, 1 / p1, bool(before),
            (None if after is None else bool(after),), len(old),
            fork="pay" if after is None else None,
        )
        for number in range(count)
        for before, after in zip(old, new, strict=True)
    ]  # fmt: skip


EXAMPLE = [
    *sessions(40, 0.25, [1], [1]),
    *sessions(4, 0.25, [1], [0]),
    *sessions(6, 0.25, [1], [None]),
    *sessions(10, 0.25, [1, 1], [1, 0]),
    *sessions(8, 1, [0], [1]),
    *sessions(4, 1, [0], [0]),
    *sessions(3, 1, [0], [None]),
]
"""That of docs/explanation/replay.md."""


def test_the_worked_example_has_the_documented_figures() -> None:
    found = forecast(EXAMPLE)

    def near(*values: float) -> object:
        return pytest.approx(values, abs=6e-7)

    assert found.old is not None
    assert found.faithful is not None
    assert found.new is not None
    assert found.difference is not None
    assert found.estimate is not None
    rate, difference, _ = found.estimate
    assert (found.old.value, *found.old.interval) == near(0.949153, 0.882145, 0.979658)
    assert found.faithful.value == pytest.approx(0.908475, abs=6e-7)
    assert (found.new.value, *found.new.interval) == near(0.776119, 0.659044, 0.871939)
    assert (found.difference.value, *found.difference.interval) == near(
        -0.179104, -0.300704, -0.077807
    )
    assert (rate.value, *rate.interval) == near(0.785824, 0.672050, 0.877243)
    assert (difference.value, *difference.interval) == near(-0.163328, -0.281704, -0.066243)
    assert (*found.bounds, *found.bounds_interval) == near(0.705085, 0.796610, 0.590752, 0.885264)
    assert found.difference_bounds == near(-0.244068, -0.152542)
    assert found.difference_bounds_interval == near(-0.362070, -0.057506)
    assert found.cells == 3


@pytest.mark.parametrize(
    ("margin", "verdict"), [(0.02, "worse"), (0.05, "worse"), (0.1, "not_enough")]
)
def test_the_margin_is_compared_with_the_bounds(margin: float, verdict: str) -> None:
    found = forecast(EXAMPLE, Options(margin=margin))

    assert found.verdict == verdict
    assert found.enough == (found.advice is None) == (verdict != "not_enough")


def test_what_is_json_is_json_and_names_each_figure() -> None:
    data = forecast(EXAMPLE).data()

    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert {
        "old", "new", "difference", "estimate", "unsupported", "bounds", "bounds_interval",
        "difference_bounds", "difference_bounds_interval", "verdict", "margin", "enough",
        "newly_failing", "newly_passing",
    } <= data.keys()  # fmt: skip
    assert data["difference"].keys() == {"value", "interval", "p"}
    assert data["estimate"].keys() == {"rate", "interval", "difference"}
    assert (len(data["newly_failing"]), len(data["newly_passing"])) == (14, 8)


# -- the calculation -------------------------------------------------------------------------------

WEIGHTS = (1.0, 2.0, 20.0, 1.3)
VERDICTS = st.lists(st.sampled_from([0, 1, None]), min_size=3, max_size=3)
TURN = st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2), VERDICTS)
TURNS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(TURN, min_size=1, max_size=4)), min_size=1, max_size=14
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(drawn=TURNS, runs=st.integers(1, 3), deterministic=st.booleans(), alike=st.integers(1, 4))
def test_every_figure_is_that_of_the_oracle(
    drawn: list[tuple[int, list[tuple[bool, int, int, list[int | None]]]]],
    runs: int,
    deterministic: bool,
    alike: int,
) -> None:
    turns, items = [], []
    for number, (weight, own) in enumerate(drawn):
        for old, cell, group, new in own:
            turns.append(Turn(str(number), WEIGHTS[weight], old, cell, group))
            items += [
                Item(len(turns) - 1, run, 1.5 * WEIGHTS[weight] / runs, y == 1)
                for run, y in enumerate(new[:runs])
                if y is not None
            ]
    spoken_for = {turns[item.turn].cell for item in items}
    lost = [place for place, turn in enumerate(turns) if turn.cell not in spoken_for]
    if len(lost) == len(turns):
        return
    cell = min(spoken_for)
    turns = [turn if turn.cell in spoken_for else turn._replace(cell=cell) for turn in turns]
    replayed = {turns[item.turn].session for item in items}
    others = [turn for turn in turns if turn.session not in replayed]
    copies = [one._replace(session=f"{one.session}-{n}") for n in range(1, alike) for one in others]
    whole = [turn[:-1] for turn in (*turns, *copies)]
    oracle = ForecastOracle(whole, items, deterministic=deterministic)
    turns = [turn if turn.session in replayed else turn._replace(sessions=alike) for turn in turns]

    found = calculate(turns, items, deterministic=deterministic)

    assert found.rate.value == pytest.approx(oracle.rate)
    assert found.effective_sessions == pytest.approx(oracle.sessions, rel=1e-6)
    assert found.rate.interval == pytest.approx(oracle.interval, abs=1e-6)
    assert found.difference.value == pytest.approx(oracle.change, abs=1e-12)
    assert found.difference.interval == pytest.approx(oracle.change_interval, abs=1e-6)
    assert found.traffic == pytest.approx(oracle.traffic, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(drawn=TURNS)
def test_with_strata_for_cells_and_nothing_missing_it_is_the_estimate(
    drawn: list[tuple[int, list[tuple[bool, int, int, list[int | None]]]]],
) -> None:
    turns = [
        Turn(str(number), WEIGHTS[weight], old, weight, weight)
        for number, (weight, own) in enumerate(drawn)
        for old, *_ in own
    ]
    items = [Item(place, 0, turn.weight, turn.passed) for place, turn in enumerate(turns)]
    expected = estimate_items((one.session, 1 / one.weight, one.passed) for one in turns)

    found = calculate(turns, items)

    assert expected is not None
    assert found.rate.value == pytest.approx(expected.rate.value)
    assert found.rate.interval == pytest.approx(expected.rate.interval, abs=1e-9)
    assert found.rate.effective_n == pytest.approx(expected.rate.effective_n)
    assert found.effective_sessions == pytest.approx(expected.effective_sessions)


def test_all_recorded_and_replayed_and_deterministic_leaves_no_doubt_of_this_traffic() -> None:
    rows = [*sessions(30, 1, [1], [1]), *sessions(20, 1, [1, 0], [0, 1])]

    certain = forecast(rows, Options(deterministic=True)).estimate
    uncertain = forecast(rows).estimate

    assert certain is not None
    assert uncertain is not None
    assert certain.traffic.high - certain.traffic.low < 1e-9
    assert uncertain.traffic.high - uncertain.traffic.low > 0.05


def test_runs_that_agree_show_that_the_agent_adds_no_doubt_of_this_traffic() -> None:
    rows = [*sessions(30, 1, [1], [1]), *sessions(20, 1, [1], [0])]
    one, agreeing = (
        forecast(rows).estimate,
        forecast([replace(row, new=row.new * 3) for row in rows]).estimate,
    )

    assert one is not None
    assert agreeing is not None
    assert agreeing.rate.interval == pytest.approx(one.rate.interval), "runs are not sessions"
    assert agreeing.traffic.high - agreeing.traffic.low < 1e-6


# -- what holds for any replay ---------------------------------------------------------------------


def replays(*, faithful: bool = False) -> st.SearchStrategy[list[ReplayedTurn]]:
    """Return replays of some sessions; the turns after a fork are not faithful."""
    verdicts = st.booleans() if faithful else st.sampled_from([True, False, True, None])
    turn = st.tuples(st.sampled_from(["search", "pay", None]), st.booleans(), verdicts)
    session = st.tuples(
        st.sampled_from([1.0, 0.2]), st.sampled_from([1.0, 0.5, None]), st.lists(turn, min_size=1, max_size=5)
    )  # fmt: skip
    return st.lists(session, min_size=1, max_size=60).map(_rows)


def _rows(
    drawn: list[tuple[float, float | None, list[tuple[str | None, bool, bool | None]]]],
) -> list[ReplayedTurn]:
    rows = []
    for number, (p1, p2, own) in enumerate(drawn):
        forked = False
        for tool, old, new in own:
            forked |= new is None
            verdicts = () if p2 is None else (None if forked else new,)
            weight = None if p2 is None else 1 / (p1 * p2)
            rows.append(ReplayedTurn(f"s{number}", tool, 1 / p1, weight, old, verdicts, len(own)))
    return rows


def figures(found: Forecast) -> list[float]:
    """Return every number of a forecast in a fixed order."""

    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            return [one for key in sorted(value) for one in numbers(value[key])]
        if isinstance(value, list):
            return [one for each in value for one in numbers(each)]
        return [float(value)] if isinstance(value, int | float) else []

    return numbers(found.data())


@settings(max_examples=60, deadline=None)
@given(rows=replays())
def test_the_estimate_is_within_the_bounds_and_each_within_its_interval(
    rows: list[ReplayedTurn],
) -> None:
    found = forecast(rows)

    low, high = found.bounds
    assert found.bounds_interval.low - 1e-9 <= low <= high <= found.bounds_interval.high + 1e-9
    if found.estimate is not None:
        rate, difference, _ = found.estimate
        assert low - 1e-9 <= rate.value <= high + 1e-9
        assert rate.interval.low - 1e-9 <= rate.value <= rate.interval.high + 1e-9
        assert found.difference_bounds.low - 1e-9 <= difference.value
        assert difference.value <= found.difference_bounds.high + 1e-9
        assert found.unsupported is None
    else:
        assert found.unsupported is not None


@settings(max_examples=40, deadline=None)
@given(rows=replays(faithful=True))
def test_if_all_is_faithful_the_bounds_are_the_estimate(rows: list[ReplayedTurn]) -> None:
    found = forecast(rows)

    if found.faithful is None:
        return
    assert found.faithful.value == pytest.approx(1)
    assert found.estimate is not None
    assert found.bounds == pytest.approx((found.estimate.rate.value,) * 2)
    assert found.bounds.low == found.bounds.high
    assert found.bounds_interval == pytest.approx(found.estimate.rate.interval)
    assert found.difference_bounds_interval == pytest.approx(found.estimate.difference.interval)


@settings(max_examples=40, deadline=None)
@given(rows=replays())
def test_if_nothing_is_faithful_only_bounds_remain(rows: list[ReplayedTurn]) -> None:
    found = forecast([replace(row, new=(None,)) for row in rows])

    assert (found.new, found.difference, found.estimate) == (None, None, None)
    assert found.unsupported is not None
    assert found.bounds == (0, 1)
    assert found.data()["new"] is None


@settings(max_examples=40, deadline=None)
@given(rows=replays())
def test_unchanged_verdicts_are_no_difference(rows: list[ReplayedTurn]) -> None:
    unchanged = [
        replace(row, new=tuple(None if one is None else row.old for one in row.new)) for row in rows
    ]

    found = forecast(unchanged)
    whole = forecast([replace(row, replayed=row.weight) for row in unchanged])

    assert whole.difference_bounds.low - 1e-9 <= 0 <= whole.difference_bounds.high + 1e-9
    if found.difference is not None:
        assert found.difference.value == pytest.approx(0, abs=1e-9)
        assert found.difference.p == pytest.approx(1, abs=1e-6)
        assert found.difference.interval.low <= 1e-9
        assert found.difference.interval.high >= -1e-9
    assert (found.newly_failing, found.newly_passing) == ((), ())


@settings(max_examples=30, deadline=None)
@given(rows=replays(), seed=st.integers(0, 9), power=st.integers(1, 5))
def test_neither_the_order_of_sessions_nor_a_common_factor_of_weights_matters(
    rows: list[ReplayedTurn], seed: int, power: int
) -> None:
    names = sorted({row.session for row in rows})
    random.Random(seed).shuffle(names)
    shuffled = [row for name in names for row in rows if row.session == name]
    scaled = [
        replace(row, weight=row.weight * 2**power, replayed=row.replayed and row.replayed * 2**power)
        for row in rows
    ]  # fmt: skip
    found = forecast(rows)

    assert forecast(shuffled) == found
    other = forecast(scaled)
    if found.estimate is not None:
        assert other.estimate is not None
        traffic = found.estimate.traffic  # is that of more turns
        other = replace(other, estimate=other.estimate._replace(traffic=traffic))
    assert figures(other) == pytest.approx(figures(found), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(rows=replays(), alike=st.integers(1, 4))
def test_one_session_may_stand_for_all_that_are_alike(rows: list[ReplayedTurn], alike: int) -> None:
    others = [row for row in rows if row.replayed is None]
    copies = [replace(row, session=f"{row.session}-{n}") for n in range(1, alike) for row in others]
    as_one = [row if row.replayed else replace(row, sessions=alike) for row in rows]

    found, whole = forecast(as_one), forecast([*rows, *copies])

    assert figures(found) == pytest.approx(figures(whole), abs=1e-9)


def test_failing_is_passing_the_other_way_round() -> None:
    swapped = [
        replace(row, old=not row.old, new=tuple(None if one is None else not one for one in row.new))
        for row in EXAMPLE
    ]  # fmt: skip

    found, other = forecast(EXAMPLE), forecast(swapped)

    assert found.new is not None
    assert other.new is not None
    assert other.new.value == pytest.approx(1 - found.new.value)
    assert (1 - other.bounds_interval.high, 1 - other.bounds_interval.low) == pytest.approx(
        found.bounds_interval, abs=0.01
    ), "only the cells differ"


# -- no estimate -----------------------------------------------------------------------------------


def test_a_tool_that_almost_always_forks_leaves_no_estimate() -> None:
    rows = [*sessions(80, 0.5, [1], [1]), *sessions(15, 0.5, [1], [None], "renamed")]

    found = forecast(rows)

    assert found.estimate is None
    assert found.unsupported is not None
    assert found.unsupported.tools == ("renamed",)
    assert found.unsupported.share == pytest.approx(15 / 95)
    assert found.new is not None, "what is faithful is still compared"


@pytest.mark.parametrize(
    "rows",
    [
        [*sessions(80, 0.5, [1], [1]), *sessions(2, 0.5, [1], [None], "rare")],
        [*sessions(400, 0.5, [1], [1]), *sessions(4, 0.5, [1], [None], "one_percent")],
        [
            *sessions(80, 0.5, [1], [1]),
            *sessions(3, 0.5, [1], [1], "some"),
            *sessions(9, 0.5, [1], [None], "some"),
        ],
    ],
    ids=["two sessions", "one per cent", "a quarter is faithful"],
)
def test_few_forks_of_a_tool_leave_the_estimate(rows: list[ReplayedTurn]) -> None:
    assert forecast(rows).estimate is not None


def test_less_than_half_faithful_leaves_no_estimate() -> None:
    half = [*sessions(50, 1, [1], [1]), *sessions(50, 1, [1], [None])]

    found = forecast([*half, *sessions(1, 1, [1], [None], "other")])

    assert forecast(half).estimate is not None
    assert found.estimate is None
    assert found.unsupported is not None
    assert found.unsupported.share == pytest.approx(51 / 101)
    assert found.unsupported.tools == ()


def test_turns_without_a_tool_may_all_fork_too() -> None:
    rows = [replace(row, first_tool=None) for row in sessions(20, 1, [1], [None], "none")]

    found = forecast([*rows, *sessions(80, 1, [1], [1])])

    assert found.unsupported is not None
    assert found.unsupported.tools == (NO_TOOL,)


def test_without_old_verdicts_or_replayed_turns_there_is_nothing_but_no_nan() -> None:
    nothing = forecast([replace(row, old=None) for row in EXAMPLE])
    planned = forecast([replace(row, replayed=None, new=()) for row in EXAMPLE])

    assert nothing == forecast([]) == Forecast(0.02)
    assert planned.old is not None
    assert (planned.verdict, planned.bounds) == ("not_enough", (0, 1))
    assert planned.difference_bounds == pytest.approx((-0.949153, 0.050847), abs=1e-6)
    json.dumps([nothing.data(), planned.data()], allow_nan=False)


@pytest.mark.parametrize(
    ("count", "verdict"), [(1, "not_enough"), (30, "not_enough"), (300, "not_worse")]
)
@pytest.mark.parametrize("new", [0, 1])
def test_few_sessions_that_all_failed_do_not_show_that_nothing_gets_worse(
    count: int, verdict: str, new: int
) -> None:
    found = forecast(sessions(count, 1, [0], [new]))

    assert found.old is not None
    assert found.difference is not None
    assert found.difference.interval.low <= new - found.old.interval.high
    assert found.verdict == (verdict if new == 0 else "not_worse" if count > 1 else "not_enough")


def test_what_would_help_is_named() -> None:
    forks = [*sessions(60, 1, [1], [1]), *sessions(40, 1, [1], [None])]
    few = [*sessions(20, 1, [1], [1]), *sessions(3, 1, [0], [0])]

    left = [replace(one, fork=None) for one in forks]

    assert forecast(forks).advice == "fewer forks would help, above all at pay"
    assert "faithfully to their end" in (forecast(left).advice or ""), "no call forked"
    assert forecast(few).advice == "more sessions would help"


def test_a_session_is_newly_failing_if_most_of_its_runs_fail() -> None:
    def turn(session: str, old: bool | None, *new: bool | None) -> ReplayedTurn:
        return ReplayedTurn(session, None, 1, 1, old, new)

    found = forecast(
        [
            turn("fails", True, True, True, False), turn("fails", True, False, False, True),
            turn("ties", True, True, False), turn("forks", True, None, False, True),
            turn("passes", False, None, True, True), turn("passes", True, True, True, True),
            turn("still fails", False, False, False, True),
            turn("crashes", True, False), turn("crashes", True, None),
            turn("passes, then forks", False, True), turn("passes, then forks", True, None),
            turn("has no old verdict", None, True),
        ]
    )  # fmt: skip

    assert (found.newly_failing, found.newly_passing) == (("crashes", "fails"), ("passes",))


def test_the_faithful_share_needs_no_verdicts() -> None:
    rows = [replace(row, old=None, new=(None if row.new[0] is None else True,)) for row in EXAMPLE]

    found = faithful_share(rows)

    assert found is not None
    assert found.rate.value == pytest.approx(0.908475, abs=1e-6)
    assert faithful_share([]) is None


# -- cells and draws -------------------------------------------------------------------------------


def names(count: int, begin: int = 0) -> set[str]:
    """Return as many names of sessions."""
    return {str(number) for number in range(begin, begin + count)}


def test_small_cells_are_joined_with_the_smallest_of_their_parent_first() -> None:
    cells = cells_of(
        {
            ("a", 1): names(4), ("a", 2): names(7, 100), ("a", 3): names(30, 200),
            ("b", 1): names(3, 300), ("b", 2): names(2, 400),
            ("c", 1): names(12, 500),
        }
    )  # fmt: skip

    assert cells["a", 1] == cells["a", 2] != cells["a", 3]
    assert cells["b", 1] == cells["b", 2] == cells["a", 1], (
        "5 sessions move up, 11 are the smallest"
    )
    assert len(set(cells.values())) == 3


def test_a_session_of_two_cells_counts_once_when_they_are_joined() -> None:
    cells = cells_of({("a",): names(9), ("b",): names(9), ("c",): names(20, 100)})

    assert len(set(cells.values())) == 1


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 2)),
        st.sets(st.integers(0, 40).map(str), max_size=25),
        min_size=1,
    )
)
def test_every_cell_has_sessions_enough_or_is_the_only_one(
    sessions: dict[tuple[str | int, ...], set[str]],
) -> None:
    cells = cells_of(sessions)

    assert cells.keys() == sessions.keys()
    members = {
        cell: set().union(*(sessions[key] for key in cells if cells[key] == cell))
        for cell in cells.values()
    }
    assert len(members) == 1 or min(map(len, members.values())) >= ENOUGH_SESSIONS


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=50), st.integers(0, 60), st.integers(0, 60)
)
def test_the_expected_number_of_drawn_sessions_is_the_size_and_larger_sizes_contain_smaller(
    probabilities: list[float], size: int, other: int
) -> None:
    recorded = {f"s{number}": p1 for number, p1 in enumerate(probabilities)}

    drawn, more = draw_sessions(recorded, size), draw_sessions(recorded, size + other)

    assert drawn.keys() <= more.keys()
    assert all(draw_of(session) < p2 <= 1 for session, p2 in drawn.items())
    if size >= len(recorded):
        assert drawn == dict.fromkeys(recorded, 1.0)
    assert draw_sessions(dict(reversed(recorded.items())), size) == drawn


def test_sessions_are_drawn_so_that_all_traffic_has_the_same_chance() -> None:
    recorded = {f"s{number}": 1.0 if number % 3 == 0 else 0.2 for number in range(3000)}

    drawn = draw_sessions(recorded, 600)

    share = 600 / (1000 / 1.0 + 2000 / 0.2)
    assert len(drawn) == pytest.approx(600, abs=60)
    assert {round(recorded[session] * p2, 9) for session, p2 in drawn.items()} == {round(share, 9)}
