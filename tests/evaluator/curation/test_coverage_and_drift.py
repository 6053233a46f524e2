"""Coverage and drift: planted gaps and changes are found, and no change is reported where there is none."""

import json
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.cases import language
from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.curation import drift as drift_module
from evaltap.evaluator.curation.coverage import coverage
from evaltap.evaluator.curation.drift import drift
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.values import Seen
from support.builders.cases import make_case, make_records, make_turn, write_log
from support.worlds.shop import Asked, landed


def seen(
    number: int, tools: Sequence[str], text: str = "hello", probability: float = 1, session: int = -1
) -> Seen:  # fmt: skip
    name = f"s-{number if session < 0 else session}"
    return Seen(TurnKey("a", "x", name, f"t-{number}"), tuple(tools), "m", "", text, probability)


def traffic(
    rng: random.Random, shares: Sequence[float], sessions: int, first: int = 0
) -> list[Seen]:
    """Return sessions of one to four turns that mostly call the same tool."""
    made: list[Seen] = []
    for session in range(first, first + sessions):
        (own,) = rng.choices(range(len(shares)), shares)
        for _ in range(rng.randint(1, 4)):
            tool = own if rng.random() < 0.7 else rng.choices(range(len(shares)), shares)[0]
            probability = rng.choice((1.0, 0.1))
            made.append(seen(len(made), [f"tool-{tool}"], probability=probability, session=session))
    return made


def test_the_share_that_is_covered_is_weighted_by_what_turns_stand_for() -> None:
    turns = [seen(0, ["a"]), seen(1, ["b"], probability=0.1), seen(2, ["a", "b"]), seen(3, [])]

    found = coverage("tools", turns, [seen(0, ["a"]), seen(1, ["z"])])

    assert found.covered is not None
    assert found.covered.rate.value == pytest.approx(1 / 13)
    assert found.covered.rate.interval.low <= 1 / 13 <= found.covered.rate.interval.high
    assert [(gap.value, round(gap.share.value * 13)) for gap in found.gaps] == [
        ("b", 10), ("", 1), ("a > b", 1),
    ]  # fmt: skip
    assert [key.name for key in found.gaps[0].examples] == ["s-1#t-1"]
    (covered,) = found.covered_values
    assert (covered.value, covered.turns, covered.cases) == ("a", 1, 1)
    assert covered.rate == pytest.approx(1 / 13)
    assert found.unseen == ("z",)


def test_a_tool_counts_wherever_it_is_called_and_a_path_as_a_whole() -> None:
    turns, cases = [seen(0, ["a", "b", "b"])], [seen(0, ["a"]), seen(1, ["a", "b"])]

    assert coverage("tool", turns, cases).gaps == ()
    assert [gap.value for gap in coverage("tools", turns, cases).gaps] == ["a > b > b"]
    assert coverage("tools", turns, cases, fold=True).gaps == ()


def test_too_few_cases_are_a_gap() -> None:
    turns, cases = [seen(0, ["a"])], [seen(0, ["a"]), seen(1, ["a"])]

    assert coverage("tools", turns, cases, fewest=2).gaps == ()
    assert [gap.value for gap in coverage("tools", turns, cases, fewest=3).gaps] == ["a"]


def test_an_intent_is_covered_by_a_case_that_asks_the_same_in_other_words() -> None:
    turns = [
        seen(0, [], "Where is my order A-1?"),
        seen(1, [], "Where is my order A-2, please?"),
        seen(2, [], "Do you sell garden chairs?"),
    ]

    found = coverage("intent", turns, [seen(9, ["x"], "Hi, where is my order?")])

    assert found.covered is not None
    assert found.covered.rate.value == pytest.approx(2 / 3)
    assert [gap.value for gap in found.gaps] == ["Do you sell garden chairs?"]


@pytest.mark.slow
def test_an_unknown_language_is_no_language_that_a_set_could_cover() -> None:
    turns = [seen(0, [], "Wo ist meine Bestellung geblieben, bitte?"), seen(1, [], "Wo ist A-1?")]

    found = coverage("language", turns, [seen(2, [], "Where is it?")])

    assert found.covered is not None
    assert (found.covered.rate.value, found.covered.rate.n, found.unknown) == (0, 1, 1)
    assert [gap.value for gap in found.gaps] == ["de"]


def test_the_gaps_that_are_not_listed_are_counted() -> None:
    found = coverage("tools", [seen(number, [f"tool-{number}"]) for number in range(30)], [])

    assert (len(found.gaps), found.more_gaps) == (20, 10)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wo ist meine Bestellung geblieben, bitte?", "de"),
        ("Where has my order gone, please tell me?", "en"),
        ("注文はどこですか", "ja"),
        ("我的订单在哪里", "zh"),
        ("주문은 어디에 있습니까", "ko"),
        ("A-100", "und"),
        ("ok", "und"),
        ("", "und"),
    ],
)
def test_the_language_of_a_text(text: str, language: str) -> None:
    assert language_of(text) == language


SHARES = (0.4, 0.3, 0.2, 0.1)


@pytest.mark.slow
def test_traffic_that_does_not_change_is_not_called_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drift_module, "PERMUTATIONS", 200)
    rng = random.Random(7)

    alarms = sum(
        drift(["tools"], traffic(rng, SHARES, 60), traffic(rng, SHARES, 60, 1_000))[0].p_value
        <= 0.05
        for _ in range(100)
    )

    assert alarms <= 11  # the 99.5 % quantile of 100 draws at 5 %


def test_turns_of_a_session_are_no_evidence_of_their_own() -> None:
    # Ten sessions a period, each of fifty turns with one tool: five differ, as they may by chance.
    rng = random.Random(3)

    def sessions(first: int) -> list[Seen]:
        return [
            seen(turn, [tool], session=first + session)
            for session in range(10)
            for tool in [rng.choice("ab")]
            for turn in range(50)
        ]

    found = [drift(["tools"], sessions(0), sessions(100))[0].p_value for _ in range(10)]

    assert sum(one <= 0.05 for one in found) <= 2


def test_a_change_that_was_planted_is_found_and_named() -> None:
    rng = random.Random(5)
    before = traffic(rng, (*SHARES, 0.0), 150)
    after = traffic(rng, (0.25, 0.3, 0.2, 0.1, 0.15), 150, 1_000)

    tools, model = drift(["tools", "model"], before, after)

    assert tools.p_value <= 0.01
    assert tools.q_value <= 0.02
    assert tools.distance > 2 * tools.expected
    assert {shift.value for shift in tools.shifts[:2]} == {"tool-0", "tool-4"}
    new = next(shift for shift in tools.shifts if shift.value == "tool-4")
    assert new.data()["is_new"]
    assert new.low > 0
    assert model.p_value == 1


def test_the_same_periods_give_the_same_figures() -> None:
    before, after = (traffic(random.Random(n), SHARES, 30, n * 100) for n in (1, 2))

    assert drift(["tools"], before, after) == drift(["tools"], before, after)
    assert drift(["tools"], before, before)[0].distance == 0


def test_a_change_of_everything_has_an_interval_for_the_few_sessions_it_was_seen_in() -> None:
    before = [seen(number, ["a"]) for number in range(10)]
    after = [seen(number, ["b"]) for number in range(10, 20)]

    (found,) = drift(["tools"], before, after)

    (new,) = (shift for shift in found.shifts if shift.value == "b")
    assert (new.before, new.after, new.high) == (0, 1, 1)
    assert 0.4 < new.low < 0.61  # Newcombe's for 10 of 10 against 0 of 10 turns, without sessions
    assert found.sessions == (10, 10)


def test_what_is_unknown_of_a_set_is_no_change() -> None:
    before = [replace(seen(number, ["a"]), model=None) for number in range(10)]
    after = [seen(number, ["a"]) for number in range(10, 20)]

    assert [one.by for one in drift(["tools", "model"], before, after)] == ["tools"]


def test_cases_with_the_same_names_in_two_sets_keep_their_own_words() -> None:
    before = [seen(number, [], f"Where is order A-{number}?") for number in range(6)]
    after = [seen(number, [], f"I want my money back for A-{number}") for number in range(6)]

    (found,) = drift(["intent"], before, after)

    assert found.distance == 1
    assert found.p_value < 0.05
    assert {shift.value for shift in found.shifts} == {before[0].text, after[0].text}


@pytest.mark.parametrize(
    ("few", "can"), [((1, 1), False), ((2, 3), False), ((3, 3), False), ((4, 4), True)]
)
def test_so_few_sessions_that_nothing_could_change_are_too_few(
    few: tuple[int, int], can: bool
) -> None:
    before = [seen(number, ["a"]) for number in range(few[0])]
    after = [seen(number, ["b"]) for number in range(10, 10 + few[1])]

    (found,) = drift(["tools"], before, after)

    assert found.can_change == can
    assert (found.p_value <= 0.05) == can


def test_the_same_questions_are_no_drift_where_a_set_does_not_name_the_application() -> None:
    texts = ("Where is it?", "A refund!")
    before = [seen(number, [], text) for number, text in enumerate(texts)]
    cases = [seen(number, [], text) for number, text in enumerate(texts, start=10)]
    after = [replace(turn, key=turn.key._replace(app="")) for turn in cases]

    assert drift(["intent"], before, after)[0].distance == 0


# -- commands --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    early = [Asked(f"Where is my order A-{n}?", hours=n) for n in range(20)]
    late = [Asked(f"I want my money back for A-{n}", ("refund",), hours=100 + n) for n in range(20)]
    return landed(tmp_path_factory.mktemp("coverage"), [*early, *late], metrics=[])


@pytest.mark.slow
def test_coverage_names_what_a_set_lacks(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = str(tmp_path / "g.evalset.json")
    main(["curate", str(database), "--out", golden, "--filter", "tool:get_order"])
    capsys.readouterr()

    assert main(["set", "coverage", str(database), "--set", golden, "--json"]) == 0

    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [row["by"] for row in rows] == ["tools", "tool", "language", "intent"]
    assert rows[0]["covered"] == pytest.approx(0.5)
    assert rows[0]["low"] < 0.5 < rows[0]["high"]
    (gap,) = rows[0]["gaps"]
    assert (gap["value"], gap["turns"], gap["share"]) == ("refund", 20, pytest.approx(0.5))
    assert main(["set", "coverage", str(database), "--set", golden]) == 0
    assert "missing refund: 50.0%" in capsys.readouterr().out


@pytest.mark.slow
def test_versions_and_models_of_a_set_are_those_its_cases_were_recorded_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Asked("Where is my order A-1?", source={"version": "v1"})
    new = Asked("Refund A-2", ("refund",), source={"version": "v2"}, telemetry={"models": ["big"]})
    database = str(landed(tmp_path, [old, new], metrics=[]))
    golden = tmp_path / "g.evalset.json"
    by_hand = tmp_path / "h.evalset.json"
    main(["curate", database, "--out", str(golden), "--filter", "tool:get_order"])
    by_hand.write_text('{"evalSetId": "h", "evalCases": [{"evalId": "h", "conversation": [{}]}]}')
    capsys.readouterr()

    def coverages(of_set: Path, *more: str) -> list[Any]:
        arguments = ["--set", str(of_set), "--by", "version,model", "--json", *more]
        assert main(["set", "coverage", database, *arguments]) == 0
        return [
            ([gap["value"] for gap in row["gaps"]], row["unseen"])
            for row in json.loads(capsys.readouterr().out)
        ]

    assert coverages(golden) == [(["v2"], []), (["big"], [])]
    assert coverages(golden, "--filter", "tool:refund") == [(["v2"], ["v1"]), (["big"], ["small"])]
    assert coverages(by_hand) == [(["v1", "v2"], []), (["big", "small"], [])]


@pytest.mark.slow
def test_a_case_that_expects_nothing_covers_the_tools_it_was_recorded_with(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = str(tmp_path / "g.evalset.json")
    main(["curate", str(database), "--as", "inputs", "--out", golden, "--filter", "tool:refund"])
    by_hand = tmp_path / "h.evalset.json"
    case = {"evalId": "h", "conversation": [{"userContent": {"role": "user", "content": "Hi!"}}]}
    by_hand.write_text(json.dumps({"evalSetId": "h", "evalCases": [case]}))
    capsys.readouterr()

    def gaps(of_set: str, *more: str) -> tuple[list[str], list[str]]:
        arguments = ["--set", of_set, "--by", "tools", "--json", *more]
        assert main(["set", "coverage", str(database), *arguments]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        return [gap["value"] for gap in row["gaps"]], row["unseen"]

    assert gaps(golden) == (["get_order"], [])
    assert gaps(str(by_hand)) == (["get_order", "refund"], [])


def test_tools_that_were_not_recorded_are_not_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = make_turn("t-1", capture={"tools": "missing"}, tools=[])
    turns = [make_case("s-1", [hidden]), make_case("s-2", [make_turn("t-2", tools=[])])]
    write_log(tmp_path / "log.db", make_records(turns))
    store = str(tmp_path / "x.duckdb")
    main(["consume", "--log", str(tmp_path / "log.db"), "--db", store, "--until-idle"])
    capsys.readouterr()

    assert main(["set", "coverage", store, "--by", "tools,tool", "--json"]) == 0

    tools, tool = json.loads(capsys.readouterr().out)
    assert (tools["turns"], tools["unknown"]) == (1, 1)
    assert [gap["value"] for gap in tools["gaps"]] == [""]
    assert (tool["turns"], tool["covered"]) == (0, None)


def test_cases_of_another_application_cover_nothing_of_this_one(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = tmp_path / "g.evalset.json"
    main(["curate", str(database), "--out", str(golden)])
    other = tmp_path / "o.evalset.json"
    other.write_text(golden.read_text().replace('"appName": "shop"', '"appName": "other"'))
    capsys.readouterr()

    covered = []
    for path in (golden, other):
        arguments = ["--set", str(path), "--app", "shop", "--by", "tools", "--json"]
        assert main(["set", "coverage", str(database), *arguments]) == 0
        covered.append(json.loads(capsys.readouterr().out)[0]["covered"])

    assert covered == [1, 0]


def test_drift_says_what_it_cannot_compare(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_hand = tmp_path / "h.evalset.json"
    case = {"evalId": "h", "conversation": [{"userContent": {"role": "user", "content": "Hi!"}}]}
    by_hand.write_text(json.dumps({"evalSetId": "h", "evalCases": [case]}))
    arguments = ["--before", f"set:{by_hand}", "--after", "2026-11-20/2026-12-01"]

    assert main(["set", "drift", str(database), *arguments, "--by", "model,intent"]) == 0
    said = capsys.readouterr()
    assert "model: not compared" in said.err
    assert "intent: too few sessions" not in said.out  # one against forty may be enough
    assert main(["set", "drift", str(database), *arguments, "--by", "model"]) == 3


def test_drift_between_periods_and_against_a_set(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    periods = ["--before", "2026-11-21/2026-11-24", "--after", "2026-11-24/2026-12-01"]
    assert main(["set", "drift", str(database), *periods, "--json"]) == 0
    tools = json.loads(capsys.readouterr().out)[0]
    assert (tools["by"], tools["distance"]) == ("tools", 1.0)
    assert tools["p_value"] < 0.01

    golden = str(tmp_path / "g.evalset.json")
    main(["curate", str(database), "--out", golden, "--filter", "tool:get_order"])
    of_set = ["--before", f"set:{golden}", *periods[2:], "--by", "tools"]
    assert main(["set", "drift", str(database), *of_set]) == 0
    assert "refund: 0.0% -> 100.0%" in capsys.readouterr().out


def test_without_a_set_coverage_shows_what_a_first_one_could_contain(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["set", "coverage", str(database), "--by", "tools"]) == 0

    said = capsys.readouterr().out
    assert "what a first eval set could contain" in said
    assert re.search(r"^tools \(\d+ turns\)\n  \w", said, re.MULTILINE)
    assert "missing" not in said
    assert f"next: evaltap curate {database} --out golden.evalset.json" in said


def test_without_its_package_no_language_is_told_from_another_and_that_is_said(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)  # as if it were not installed
    language._classifier.cache_clear()

    assert main(["set", "coverage", str(database), "--by", "language"]) == 0

    language._classifier.cache_clear()
    said = capsys.readouterr()
    assert "language: none known in this traffic" in said.out
    assert "languages that share a script are unknown" in said.err
    assert "[languages]" in said.err


def test_traffic_without_tools_has_none_to_cover(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = landed(tmp_path, [Asked("Hello?", ())])

    assert main(["set", "coverage", str(database)]) == 0

    assert "tool: none in this traffic" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["set", "coverage", "--set", "S", "--by", "tols"], 2, "did you mean 'tools'?"),
        (["set", "coverage", "--set", "S", "--since", "2030-01-01T00:00:00Z"], 3, "no turn has landed"),
        (["set", "drift", "--before", "x", "--after", "y"], 2, "expected A/B"),
        (["set", "drift", "--before", "2026-11-02/2026-11-01", "--after", "y"], 2, "earlier time first"),
        (["set", "drift", "--before", "2020-11-01/2020-11-02", "--after", "2026-11-01/2026-12-01"], 3,
         "contains no turns"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    arguments: list[str], code: int, said: str,
) -> None:  # fmt: skip
    (tmp_path / "s.evalset.json").write_text('{"evalSetId": "s", "evalCases": []}')
    given = [str(tmp_path / "s.evalset.json") if one == "S" else one for one in arguments]

    try:
        found = main([*given[:2], str(database), *given[2:]])
    except SystemExit as exit_:
        found = int(exit_.code or 0)

    assert found == code
    assert said in capsys.readouterr().err
