"""Curating: planted failures and rare paths are picked, sets are stable, edits are kept."""

import json
import shutil
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.filters.choice import VIEW, turns_with
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.curation import grouping
from evaltap.evaluator.curation.grouping import health, turn_groups, window_turns
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.recipe import BUILT_IN, Recipe, read_recipe
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas import EvalMetric
from evaltap.schemas.errors import EvaltapError
from support.builders.cases import NOON, RESPONSE, TRAJECTORY, make_tool, make_turn
from support.worlds.curated import curate, labels, traffic
from support.worlds.shop import Asked, landed


def recipe(folder: Path, **given: Any) -> str:
    (folder / "r.json").write_text(json.dumps({"name": "r", **given}))
    return str(folder / "r.json")


@pytest.mark.parametrize("batch", [3, 20_000])
def test_turns_with_one_text_group_as_each_does_alone(
    database: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "BATCH", batch)
    with Store(database) as store, window_turns(store, Recipe("all", ())) as window:
        keys = store.rows("SELECT app_name, eval_set_id, eval_id, invocation_id FROM turns")
        alone = turn_groups(window.of([TurnKey(*key) for key in keys]).values())
        with window.texts() as texts:
            groups = turn_groups(texts.turns)
            members = texts.members(groups)

    assert len(texts.turns) < len(keys)
    assert members == [[one.key.name for one in group.members] for group in alone]
    assert [(one.medoid.key, one.turns) for one in groups] == [
        (one.medoid.key, one.turns) for one in alone
    ]
    found, expected = health(groups), health(alone)
    assert found.pop("mean_similarity") == pytest.approx(expected.pop("mean_similarity"))
    assert found == expected


@pytest.mark.slow
def test_the_lean_query_gives_what_the_view_gives(database: Path) -> None:
    with Store(database) as store:
        names = [row[0] for row in store.rows(f"DESCRIBE {VIEW}")]
        for name in names:
            key = f"eval_id, invocation_id, {name}"
            lean = store.rows(f"SELECT {key} FROM ({turns_with(name)}) ORDER BY 1, 2")
            assert lean == store.rows(f"SELECT {key} FROM {VIEW} ORDER BY 1, 2"), name


def test_near_duplicates_become_one_case_that_weighs_them_all(
    database: Path, tmp_path: Path
) -> None:
    cases = curate(database, tmp_path / "s.evalset.json")

    curation = [case["source"]["curation"] for case in cases]
    # Four intents, each with polite and impolite answers, and the three turns that are alone.
    assert len(cases) == 11
    assert sum(one["members"] for one in curation) == 43
    assert sum(one["weight"] for one in curation) == 43
    assert all(one["labels"] == ["random"] for one in curation)


def test_each_pick_takes_what_it_says(database: Path, tmp_path: Path) -> None:
    picks = [
        {"label": "failed", "metric": "polite"},
        {"label": "errors"},
        {"label": "thumbs_down"},
        {"label": "rare_tool", "below": 0.05},
        {"label": "rare_path", "below": 0.03},
        {"label": "slow", "top": 0.03},
    ]
    path = recipe(tmp_path, pick=picks)

    found = labels(curate(database, tmp_path / "s.evalset.json", "--recipe", path))

    assert found["s-40"] == ["rare_path:export_all", "rare_tool:export_all"]
    assert found["s-41"] == [
        "errors:TimeoutError", "failed:polite", "rare_path:track", "rare_tool:track", "slow:141.0",
    ]  # fmt: skip
    assert found["s-42"] == ["failed:polite", "slow:142.0", "thumbs_down"]
    assert {"failed:polite"} <= set().union(*found.values())
    assert len(found) == 7  # four impolite groups, and the three


@pytest.mark.slow
def test_judges_of_two_runs_that_decide_otherwise_do_not_disagree(tmp_path: Path) -> None:
    database = landed(tmp_path, [Asked("Help me"), Asked("Cancel it")])
    votes = [("r-1", 0, ["passed", "passed"]), ("r-2", 0, ["failed", "failed"]),
             ("r-1", 1, ["passed", "failed"])]  # fmt: skip
    with Store(database) as store:
        for run, turn, statuses in votes:
            store.execute(
                "INSERT INTO judge_calls BY NAME SELECT $run AS run_id, app_name, eval_set_id, eval_id,"
                " invocation_id, turn_revision, 'helpful' AS metric_name, number AS sample_index,"
                " 'judge' AS judge, $statuses[number] AS status, false AS cached, now() AS scored_at"
                " FROM turns, range(1, 3) AS samples(number) WHERE invocation_id = $turn",
                {"run": run, "turn": f"t-{turn}", "statuses": statuses},
            )
    path = recipe(tmp_path, pick=[{"label": "disagreement"}])

    found = labels(curate(database, tmp_path / "s.evalset.json", "--recipe", path))

    assert found == {"s-1": ["disagreement:helpful"]}


def test_a_pick_by_a_metric_that_scored_nothing_says_so(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picks = [{"label": "failed", "metric": "polit"}, {"label": "errors"}]
    path = recipe(tmp_path, pick=picks)

    curate(database, tmp_path / "s.evalset.json", "--recipe", path)

    said = "failed: no turn has a verdict of 'polit'; did you mean 'polite'?"
    assert said in capsys.readouterr().err


def test_a_recipe_may_give_its_times_in_any_zone(database: Path, tmp_path: Path) -> None:
    here = NOON + timedelta(hours=30)
    found = []
    for since in (here, here.astimezone(timezone(timedelta(hours=5, minutes=30)))):
        path = recipe(
            tmp_path, pick=[{"label": "random"}], **{"from": {"since": since.isoformat()}}
        )
        found.append(labels(curate(database, tmp_path / "s.evalset.json", "--recipe", path)))

    assert 0 < len(found[0]) < 11
    assert found[0] == found[1]


def test_every_value_of_a_stratum_has_its_turn(database: Path, tmp_path: Path) -> None:
    path = recipe(tmp_path, pick=[{"label": "stratified", "by": ["tool_path"], "per": 1}])

    found = labels(curate(database, tmp_path / "s.evalset.json", "--recipe", path))

    assert sorted(one[0] for one in found.values()) == [
        "stratified:(none)", "stratified:cancel", "stratified:export_all", "stratified:get_order",
        "stratified:get_order > refund", "stratified:track",
    ]  # fmt: skip


@pytest.mark.slow
def test_uncovered_and_new_look_at_a_set(database: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.evalset.json"
    curate(database, first, "--filter", "tool:get_order")
    uncovered = {"label": "uncovered", "by": "tool_path", "against": "first.evalset.json"}

    path = recipe(tmp_path, pick=[uncovered])
    found = labels(curate(database, tmp_path / "u.evalset.json", "--recipe", path))
    assert sorted(one[0] for one in found.values()) == [
        "uncovered:(none)", "uncovered:cancel", "uncovered:export_all", "uncovered:track",
    ]  # fmt: skip

    path = recipe(tmp_path, pick=[{"label": "new", "against": "first.evalset.json"}])
    cases = curate(database, tmp_path / "n.evalset.json", "--recipe", path)
    tools = {tool["name"] for case in cases for turn in case["actualConversation"]
             for tool in turn.get("tools", [])}  # fmt: skip
    assert tools == {"cancel", "export_all", "track"}


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        (["language", "tool_path"], {"uncovered:refund, en"}),
        (["version"], {"uncovered:v2"}),
        (["model"], {"uncovered:big"}),
    ],
)
def test_uncovered_compares_what_cases_have_of_each_dimension(
    tmp_path: Path, by: list[str], wanted: set[str]
) -> None:
    old = Asked("Where is my parcel, please?", source={"version": "v1"})
    new = Asked("I want all of my money back now", ("refund",), source={"version": "v2"},
                telemetry={"models": ["big"]})  # fmt: skip
    database = landed(tmp_path, [old, new], metrics=[])
    curate(database, tmp_path / "first.evalset.json", "--filter", "tool:get_order")
    uncovered = {"label": "uncovered", "by": by, "against": "first.evalset.json"}
    path = recipe(tmp_path, pick=[uncovered])

    cases = curate(database, tmp_path / "u.evalset.json", "--recipe", path)

    assert {label for found in labels(cases).values() for label in found} == wanted


@pytest.mark.slow
def test_new_and_uncovered_are_reasons_of_turns_that_another_pick_took(
    database: Path, tmp_path: Path
) -> None:
    curate(database, tmp_path / "first.evalset.json", "--filter", "tool:get_order")
    against = {"against": "first.evalset.json"}
    picks = [{"label": "errors"}, {"label": "uncovered", **against}, {"label": "new", **against}]
    path = recipe(tmp_path, pick=picks)

    found = labels(curate(database, tmp_path / "s.evalset.json", "--recipe", path))

    assert found["s-41"] == ["errors:TimeoutError", "new", "uncovered:track"]


@pytest.mark.slow
def test_new_means_the_same_where_near_duplicates_are_kept(database: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.evalset.json"
    curate(database, first, "--filter", "tool:get_order")
    pick = [{"label": "new", "against": "first.evalset.json"}]

    path = recipe(tmp_path, pick=pick, collapse=False)
    cases = curate(database, tmp_path / "n.evalset.json", "--recipe", path)

    tools = {tool["name"] for case in cases for turn in case["actualConversation"]
             for tool in turn.get("tools", [])}  # fmt: skip
    assert tools == {"cancel", "export_all", "track"}


@pytest.mark.slow
def test_the_same_store_and_recipe_give_the_same_bytes_on_a_rebuilt_store_too(
    tmp_path: Path,
) -> None:
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        asked = traffic()
        database = landed(tmp_path / name, asked)
        curate(database, tmp_path / name / "s.evalset.json", "--like", "coverage")
        written.append((tmp_path / name / "s.evalset.json").read_bytes())

    assert written[0] == written[1]


def test_a_larger_draw_holds_the_smaller(database: Path, tmp_path: Path) -> None:
    pick = {"collapse": False, "seed": "x", "from": {"where": "user_text NOT LIKE '%cards%'"}}
    few = recipe(tmp_path, **pick, pick=[{"label": "random", "count": 5}])
    small = labels(curate(database, tmp_path / "a.evalset.json", "--recipe", few))
    many = recipe(tmp_path, **pick, pick=[{"label": "random", "count": 20}])
    large = labels(curate(database, tmp_path / "b.evalset.json", "--recipe", many))

    assert len(small) == 5
    assert len(large) == 20
    assert set(small) <= set(large)


def test_a_set_holds_no_telemetry_and_reads_as_it_was_recorded(
    database: Path, tmp_path: Path
) -> None:
    out = tmp_path / "s.evalset.json"
    curate(database, out)

    text = out.read_text()
    for word in ("latencyMs", "costUsd", "creationTimestamp", "call-", "modelName"):
        assert word not in text
    assert "\\u003c" not in text


@pytest.mark.slow
def test_personal_data_that_a_rule_did_not_know_yet_stays_out(tmp_path: Path) -> None:
    database = landed(tmp_path, [Asked("Write to ann.miller@example.com, I am late")])
    out = tmp_path / "s.evalset.json"

    curate(database, out)
    first = out.read_bytes()
    out.unlink()
    curate(database, out)

    assert b"ann.miller" not in first
    assert b"<email:" in first
    assert out.read_bytes() == first


@pytest.mark.slow
def test_into_a_set_adds_without_disturbing_what_is_there(database: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.evalset.json"
    curate(database, out, "--filter", "tool:cancel")
    data = json.loads(out.read_text())
    data["evalCases"][0]["actualConversation"][0]["finalResponse"]["content"] = "edited"
    out.write_text(json.dumps(data))
    before = {case["evalId"]: case for case in read_set(out).cases}

    assert main(["curate", str(database), "--into", str(out), "--filter", "tool:refund"]) == 0

    after = {case["evalId"]: case for case in read_set(out).cases}
    assert {name: after[name] for name in before} == before
    assert len(after) == 4


@pytest.mark.slow
def test_an_update_keeps_edits_and_gone_cases_unless_they_are_pruned(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s.evalset.json"
    curate(database, out, "--as", "expected", "--metric", "polite")
    data = json.loads(out.read_text())
    edited = data["evalCases"][0]
    edited["conversation"][0]["finalResponse"] = {"role": "assistant", "content": "by hand"}
    data["evalCases"].append({"evalId": "own", "conversation": [make_turn("1")]})
    out.write_text(json.dumps(data))
    only = ["--as", "expected", "--metric", "polite", "--filter", f"id:{edited['evalId']}"]

    kept = curate(database, out, *only)
    assert len(kept) == len(data["evalCases"])
    pruned = curate(database, out, *only, "--prune")

    assert [case["evalId"] for case in pruned] == sorted([edited["evalId"], "own"])
    mine = next(case for case in pruned if case["evalId"] == edited["evalId"])
    assert mine["conversation"][0]["finalResponse"]["content"] == "by hand"
    assert len(curate(database, out, "--as", "expected", "--prune", code=3)) == 2


def test_a_dry_run_and_a_diff_write_nothing(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s.evalset.json"
    for option in ("--dry-run", "--diff"):
        assert main(["curate", str(database), "--out", str(out), option]) == 0
        assert not out.exists()

    assert "+ s-40  Export everything I ever bought" in capsys.readouterr().out


def test_inputs_hold_what_is_asked_only(database: Path, tmp_path: Path) -> None:
    cases = curate(database, tmp_path / "s.evalset.json", "--as", "inputs")

    for case in cases:
        assert "actualConversation" not in case
        assert set(case["conversation"][0]) == {"invocationId", "userContent"}


@pytest.mark.slow
def test_what_was_done_becomes_the_reference_only_where_it_was_found_good(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s.evalset.json"
    arguments = ["curate", str(database), "--out", str(out), "--as", "expected"]
    assert main(arguments) == 3
    assert "no turn has been approved yet" in capsys.readouterr().err
    assert main([*arguments, "--like", "representative"]) == 3
    assert "neither approved by a reviewer nor passed" in capsys.readouterr().err
    assert not out.exists()

    cases = curate(database, out, "--as", "expected", "--metric", "polite")

    assert {case["conversation"][0]["finalResponse"]["content"] for case in cases} == {
        "Yes, please.", "Here you are, please.",
    }  # fmt: skip
    assert all("promoted" in one for one in labels(cases).values())


@pytest.mark.slow
def test_nothing_is_expected_of_a_turn_that_nobody_found_good(tmp_path: Path) -> None:
    asked = [
        Asked("Where is A-1?", ("get_order",), "No.", session="s"),
        Asked("Please refund it", ("refund",), "Yes, please.", session="s"),
    ]
    database = landed(tmp_path, asked)
    out = tmp_path / "s.evalset.json"
    good = recipe(
        tmp_path, pick=[{"label": "random"}], **{"from": {"where": "final_text <> 'No.'"}}
    )
    (case,) = curate(database, out, "--as", "expected", "--metric", "polite", "--recipe", good)
    scorer = CaseScorer([EvalMetric.model_validate(one) for one in (TRAJECTORY, RESPONSE)])
    turns = [make_turn(answer=one.answer, tools=[make_tool(*one.tools)]) for one in asked]

    found = scorer.score({**case, "evalMode": "trace", "actualConversation": turns})

    statuses = [[turn.status.value for turn in metric.turns] for metric in found.metrics]
    assert statuses == [["not_evaluated", "passed"], ["not_evaluated", "passed"]]


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pick": [{"label": "faild"}]}, "did you mean 'failed'?"),
        ({"pick": [{"label": "failed", "metrik": "x"}]}, "unknown key `metrik`; did you mean 'metric'?"),
        ({"pick": [{"label": "failed"}], "window_in_seconds": 5}, "unknown key `window_in_seconds`"),
        ({"pick": [{"label": "slow", "top": 2}]}, "a number from 0 to 1"),
        ({"pick": [{"label": "stratified", "by": ["colour"]}]}, "found 'colour'"),
        ({"pick": [{"label": "uncovered"}]}, "an eval set file"),
        ({"pick": []}, "a list of picks"),
        ({"pick": [{"label": "random"}], "from": {"since": "soon"}}, "found 'soon'"),
        ({"pick": [{"label": "random"}], "expect": "good"}, "found 'good'"),
    ],
)  # fmt: skip
def test_a_recipe_that_makes_no_sense_names_the_place(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(EvaltapError) as error:
        read_recipe(Path(recipe(tmp_path, **given)))

    assert said in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no eval set given"),
        (["--out", "a", "--into", "b"], "no eval set given"),
        (["--into", "no.evalset.json"], "no such file"),
        (["--out", "s.evalset.json", "--like", "failure"], "did you mean 'failures'?"),
        (["--out", "s.evalset.json", "--metric", "x"], "only works with --as expected"),
        (["--out", "s.evalset.json", "--fixed", "x"], "only work with --as regression"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    database: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["curate", str(database), *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"evalSetId": "s", "evalCases": [{"evalId": "a"}, {"evalId": "a"}]}', "the evalId 'a'"),
        ('{"evalSetId": "s", "evalCases": [{"evalId": 5}]}', "evalId"),
        ('{"evalSetId": "s", "evalCases": [', "is it truncated?"),
        (
            '{"evalSetId": "s", "evalCases": [{"evalId": "a", "source": {"curation": 7}}]}',
            "case 'a': source.curation: found the number 7; expected an object",
        ),
        (
            '{"evalSetId": "s", "evalCases": [{"evalId": "a", "source": {"curation": {"from": "x"}}}]}',
            "case 'a': source.curation.from: found the string 'x'; expected an object",
        ),
    ],
)
def test_a_set_that_was_edited_into_nonsense_is_not_overwritten(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    out = tmp_path / "s.evalset.json"
    out.write_text(content)

    assert main(["curate", str(database), "--out", str(out)]) == 2

    assert said in capsys.readouterr().err
    assert out.read_text() == content


@pytest.mark.slow
def test_every_built_in_recipe_makes_cases(database: Path, tmp_path: Path) -> None:
    for name in BUILT_IN.keys() - {"approved"}:  # nobody has approved anything here
        assert curate(database, tmp_path / f"{name}.evalset.json", "--like", name)


def test_a_recipe_may_name_a_filter(database: Path, tmp_path: Path) -> None:
    path = recipe(tmp_path, pick=[{"label": "random"}], **{"from": {"filter": "tool:export_all"}})

    assert [*labels(curate(database, tmp_path / "s.evalset.json", "--recipe", path))] == ["s-40"]


def test_erasing_a_person_finds_the_cases_that_were_curated_of_them(
    database: Path, tmp_path: Path
) -> None:
    out = tmp_path / "s.evalset.json"
    cases = curate(database, out, "--unit", "turn")
    name = cases[0]["source"]["curation"]["from"]["evalId"]
    assert cases[0]["evalId"] != name

    assert main(["store", "erase", "--subject", name, str(out)]) == 0

    left = [case["source"]["curation"]["from"]["evalId"] for case in read_set(out).cases]
    assert name not in left
    assert len(left) == len(cases) - 1


@pytest.mark.slow
def test_the_provenance_of_a_case_says_that_its_session_was_erased(tmp_path: Path) -> None:
    database = landed(tmp_path, [Asked("Help me"), Asked("Is it cold?", ())])
    out = tmp_path / "s.evalset.json"
    curate(database, out)

    main(["store", "erase", "--subject", "s-0", "--db", str(database)])
    cases = curate(database, out)

    origins = {case["evalId"]: case["source"]["curation"]["from"] for case in cases}
    assert origins["s-0"]["gone"] is True
    assert "gone" not in origins["s-1"]


@pytest.mark.slow
def test_a_session_with_earlier_turns_that_were_not_recorded_is_not_whole(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holed = tmp_path / "holed.duckdb"
    shutil.copy(database, holed)
    with Store(holed) as store:
        store.execute(
            "UPDATE turns SET actual_json = json_merge_patch(actual_json, $hole)"
            " WHERE user_text LIKE 'Track my parcel%'",
            {"hole": json.dumps({"capture": {"earlierTurns": "missing"}})},
        )
    pick = [{"label": "errors"}]

    whole = recipe(tmp_path, pick=pick, unit="session", whole=True, limit=5)
    code = main(["curate", str(holed), "--recipe", whole, "--out", str(tmp_path / "s.json")])
    said = capsys.readouterr()

    assert "earlier turns were not recorded" in said.err + said.out, code
    cases = curate(database, tmp_path / "t.evalset.json", "--recipe", whole)
    assert len(cases) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["set", "coverage", "DB", "--set", "SET", "--app", "shp"], "--app shp: no turn of this"),
        (["set", "drift", "DB", "--before", "set:SET", "--after", "2020-01-01/2100-01-01",
          "--app", "shp"], "--app shp: no turn of this"),
        (["review", "list", "DB", "--queue", "defalt"], "no such queue; did you mean 'default'?"),
        (["review", "next", "DB", "--queue", "defalt"], "no such queue; did you mean 'default'?"),
        (["store", "dlq", "list", "DB", "--reason", "undecodabel"], "did you mean 'undecodable'?"),
    ],
    ids=["coverage", "drift", "review-list", "review-next", "dlq"],
)  # fmt: skip
def test_a_misspelt_name_is_an_error_not_an_empty_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], said: str
) -> None:
    database = landed(tmp_path, [Asked("Where is it?")], metrics=[])
    golden = tmp_path / "golden.evalset.json"
    assert main(["curate", str(database), "--out", str(golden)]) == 0
    assert main(["review", "add", str(database)]) == 0

    code = main([word.replace("DB", str(database)).replace("SET", str(golden)) for word in command])

    assert code == 2
    assert said in capsys.readouterr().err
