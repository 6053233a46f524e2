"""Filters: the language, the selected cases, and commands restricted to them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.cli.main import main
from evaltap.evaluator.analysis.filters.choice import Choice, chosen_keys, chosen_query
from evaltap.evaluator.analysis.filters.language import (
    FIELDS,
    SORTS,
    Filter,
    Term,
    parse_filter,
    quoted,
)
from evaltap.evaluator.analysis.filters.listing import list_page
from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.schemas.errors import InputError
from support.builders.cases import NOON, TRAJECTORY
from support.worlds.shop import POLITE, Asked, landed

TRAFFIC = [
    Asked("Where is order A-100? It is late"),
    Asked("I want a refund", ("get_order", "refund"), "No."),
    Asked("I want a refund for B-7", ("get_order", "refund"), thumb=True, hours=30),
    Asked("Say hello", (), thumb=False, hours=31),
    Asked("Track it", ("track",), error="TimeoutError", hours=32),
    Asked("And now?", ("get_order",), "No!", session="s-0", hours=33),
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return landed(tmp_path_factory.mktemp("filters"), TRAFFIC)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(landed(tmp_path_factory.mktemp("rows"), TRAFFIC)) as opened:
        yield opened


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    asked = [Asked("İADE nerede? ΟΔΟΣ"), Asked("Hello.")]
    with Store(landed(tmp_path_factory.mktemp("words"), asked)) as opened:
        opened.execute("UPDATE scores SET status = 'failed', reason = 'ΟΔΟΣ' WHERE eval_id = 's-0'")
        yield opened


@pytest.fixture(scope="module")
def summarised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(landed(tmp_path_factory.mktemp("summaries"), TRAFFIC)) as opened:
        Summaries(opened).make()
        yield opened


def test_a_quoted_value_finds_names_with_quotation_marks(tmp_path: Path) -> None:
    name = 'it\'s "quoted", yes'
    with Store(landed(tmp_path, [Asked("a", (name,)), Asked("b")])) as store:
        Summaries(store).make()
        found = list_page(store, Choice(parse_filter(f"tool:{quoted(name)}")), 9)

    assert [case.eval_id for case in found.cases] == ["s-0"]


CHOSEN = [
    ("", "0 1 2 3 4"),
    ("refund", "1 2"),
    ('"is late"', "0"),
    ("REFUND -b-7", "1"),
    ("hello,", ""),
    ("tool:refund", "1 2"),
    ("tool:re*,track", "1 2 4"),
    ("-tool:get_order", "3 4"),
    ('path:"get_order>refund"', "1 2"),
    ("path:get_order", "0"),
    ('path:"* > refund"', "1 2"),
    ("status:failed", "0 1 4"),
    ("status:crashed", "4"),
    ("status:error", "4"),
    ("status:passed", "2 3"),
    ("status:unscored", ""),
    ("metric:polite=failed", "0 1 4"),
    ("score:polite<0.6", "0 1"),
    ("score:polite=1", "2 3"),
    ("error:Timeout*", "4"),
    ("feedback:up", "2"),
    ("feedback:down", "3"),
    ("-feedback:any", "0 1 4"),
    ("turns:>=2", "0"),
    ("calls:0", "3"),
    ("calls:>=2", "0 1 2"),
    ("cost:>0.0015", "0"),
    ("latency:>103ms", "0 4"),
    ("latency:<0.1s", ""),
    ("app:shop", "0 1 2 3 4"),
    ("app:other", ""),
    ("user:u-1", "1 4"),
    ("model:sm*", "0 1 2 3 4"),
    ("set:live id:s-1,s-2", "1 2"),
    ("since:2026-11-22T12:00", "0 2 3 4"),
    ("to:2026-11-22", "0 1"),
    ("since:24h", "0 2 3 4"),
    ("reason:please", "0 1"),
    ("reviewed:no", "0 1 2 3 4"),
    ("label:*", ""),
    ("A-100 in:all", "0 1 2 4"),
]


@pytest.mark.parametrize(("text", "expected"), CHOSEN)
def test_each_term_chooses_the_cases_it_says_from_rows_and_from_summaries(
    store: Store, summarised: Store, text: str, expected: str
) -> None:
    for read, by_summaries in ((store, False), (summarised, True)):
        query = chosen_query(read, Choice(parse_filter(text)), now=NOON.replace(day=22, hour=18))

        found = sorted(eval_id for _, _, eval_id in read.rows(query.statement, query.parameters))

        assert ("case_index" in query.statement) == by_summaries
        assert found == [f"s-{number}" for number in expected.split()]


@pytest.mark.parametrize(
    ("sort", "first"),
    [("newest", "s-0"), ("oldest", "s-0"), ("cost", "s-0"), ("latency", "s-0"), ("worst", "s-4")],
)
def test_cases_come_in_the_order_that_was_asked_for(store: Store, sort: str, first: str) -> None:
    assert chosen_keys(store, Choice(parse_filter(f"sort:{sort}")))[0][2] == first


def test_what_is_excluded_and_what_is_not_make_the_whole(store: Store) -> None:
    everything = set(chosen_keys(store, Choice()))
    for text, _ in CHOSEN[1:]:
        if " " in text or text.startswith("-"):
            continue
        one = set(chosen_keys(store, Choice(parse_filter(text))))
        other = set(chosen_keys(store, Choice(parse_filter(f"-{text}"))))
        assert one | other == everything, text
        assert not one & other, text


def test_every_sort_and_every_field_is_a_statement_that_the_store_takes(store: Store) -> None:
    values = {"metric": "m=failed", "score": "m<1", "status": "error", "feedback": "any"}
    values |= {"reviewed": "no"}
    values |= dict.fromkeys(("cost", "latency", "turns", "calls", "tokens"), ">1")
    values |= dict.fromkeys(("since", "from", "to"), "7d")
    values |= {"in": "all", "sort": "score"}
    for field in FIELDS:
        if field not in ("version", "environment", "tag"):
            chosen_keys(store, Choice(parse_filter(f"word {field}:{values.get(field, 'x')}")))
    for sort in SORTS:
        assert len(chosen_keys(store, Choice(parse_filter(f"sort:{sort}")))) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tol:refund", "unknown field 'tol'; did you mean 'tool'?"),
        ("status:faild", "did you mean 'failed'?"),
        ("cost:much", "'much' is not a number"),
        ("latency:>5h", "'5h' is not a number"),
        ("score:0.5", "expected NAME<0.5"),
        ("metric:m=good", "expected NAME=STATUS"),
        ("metric:m=faild", "did you mean 'failed'?"),
        ('"no end', "quotation mark"),
        ("tool:a,,b", "without a value"),
        ("sort:size", "expected one of newest"),
        ("reviewd:no", "did you mean 'reviewed'?"),
        ("reviewed:maybe", "expected one of no, yes"),
        ("https://x", "unknown field 'https'"),
    ],
)
def test_a_term_that_makes_no_sense_says_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_filter(text)

    assert said in str(error.value)


def test_a_time_that_is_none_says_how_times_look(store: Store) -> None:
    with pytest.raises(InputError, match="since:yesterday"):
        chosen_keys(store, Choice(parse_filter("since:yesterday")))


@given(st.text(st.sampled_from("ab:\"'-;*?, ><=%_\\$(["), max_size=20))
def test_whatever_is_written_is_parsed_or_refused(text: str) -> None:
    try:
        found = parse_filter(text)
    except InputError:
        return
    assert isinstance(found, Filter)


@pytest.mark.parametrize("word", ["'; DROP TABLE turns; --", "zz$f0", "100%", "\\", "[a", "zz*"])
def test_a_value_is_never_part_of_the_statement(store: Store, word: str) -> None:
    for field in ("", "tool", "id", "error", "user"):
        given = Filter((Term(field, (word,)),))

        assert word not in chosen_query(store, Choice(given)).statement
        chosen_keys(store, Choice(given))


def test_a_listed_case_shows_what_was_asked_done_and_thought(store: Store) -> None:
    found = list_page(store, Choice(parse_filter("id:s-0,s-3")), 1)

    (case,) = found.cases
    assert found.matched == 2
    assert (case.eval_id, case.opening, case.turns) == ("s-0", TRAFFIC[0].question, 2)
    assert (case.tools, case.outcome, case.failed) == (("get_order",), "failed", ("polite",))
    listed = list_page(store, Choice(parse_filter("id:s-3")), 1).cases[0]
    assert (listed.feedback, listed.tools, listed.outcome) == ("down", (), "passed")


# -- conditions ------------------------------------------------------------------------------------


def test_a_condition_chooses_cases_of_which_a_turn_meets_it(store: Store) -> None:
    where = "tool_count > 1 AND outcome = 'passed' AND list_contains(tools, 'refund')"

    assert [key[2] for key in chosen_keys(store, Choice(where=where))] == ["s-2"]


@pytest.mark.parametrize(
    "where",
    [
        "EXISTS (FROM read_csv('/etc/passwd'))",
        "tool_count IN (SELECT 1)",
        "no_column > 1",
        "1 = 1) OR (1 = 1",
        "TRUE); DROP TABLE turns; --",
        "",
    ],
)
def test_a_condition_that_is_more_than_one_is_refused(store: Store, where: str) -> None:
    if not where:
        assert len(chosen_keys(store, Choice(where=where))) == 5
        return
    with pytest.raises(InputError, match="expected one SQL condition"):
        chosen_keys(store, Choice(where=where))


# -- commands --------------------------------------------------------------------------------------


def test_the_table_fits_80_columns(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", str(database)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "fb" in lines[1]
    assert any("I want a refund" in line for line in lines)


def test_cases_as_json_are_those_that_fit(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cases", str(database), "tool:refund", "feedback:up", "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert row["eval_id"] == "s-2"
    assert row["started_at"] == "2026-11-22T18:00:02.000Z"


@pytest.mark.slow
def test_export_report_and_score_look_at_the_chosen_cases_only(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert main(["set", "export", str(database), "--out", str(out), "--filter", "tool:refund"]) == 0
    assert [json.loads(line)["evalId"] for line in out.read_text().splitlines()] == ["s-1", "s-2"]
    capsys.readouterr()

    assert main(["report", str(database), "--json", "--filter", "tool:refund"]) == 1
    assert json.loads(capsys.readouterr().out)["cases"] == 2

    metric = {"metricName": "no_loop", "evaluatorName": "trajectory_no_loop", "threshold": 1,
              "criterion": {"toolTrajectory": {}}}  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps([metric]))
    chosen = ["--filter", "status:passed", "--json"]
    copied = shutil.copy(database, tmp_path / "copy.duckdb")
    assert main(["score", str(copied), "--metrics", str(tmp_path / "m.json"), *chosen]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["cases"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("summaries", [False, True])
def test_the_list_the_filter_and_the_report_agree_on_what_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], summaries: bool
) -> None:
    database = landed(tmp_path, TRAFFIC)
    (tmp_path / "m.json").write_text(json.dumps([POLITE, TRAJECTORY]))
    main(["score", str(database), "--metrics", str(tmp_path / "m.json")])  # without references
    with Store(database) as opened:
        if summaries:
            Summaries(opened).make()
    capsys.readouterr()

    main(["cases", str(database), "status:passed", "--json"])
    listed = {one["eval_id"]: one["outcome"] for one in json.loads(capsys.readouterr().out)}
    main(["report", str(database), "--format", "markdown"])
    title = capsys.readouterr().out.splitlines()[0]

    assert listed == {"s-2": "passed", "s-3": "passed"}
    assert title.endswith("5 cases: 2 passed, 2 failed, 1 crashed")


def test_why_explains_each_case_that_fits(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", str(database), "--filter", "metric:polite=failed"]) == 0

    said = capsys.readouterr().out
    assert "s-1: polite: failed" in said
    assert "s-2" not in said


@pytest.mark.parametrize("command", ["set export", "report", "why", "score"])
def test_a_filter_that_fits_nothing_ends_a_command_with_what_to_do(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    more = {
        "set export": ["--out", str(tmp_path / "e.jsonl")],
        "score": ["--metrics", str(database.parent / "metrics.json")],
    }

    code = main([*command.split(), str(database), *more.get(command, []), "--filter", "tool:refnd"])

    assert code == 2
    said = "no case matches tool:refnd; no tool 'refnd' is stored; did you mean 'refund'?"
    assert said in capsys.readouterr().err
    assert not (tmp_path / "e.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tool:refnd", "no tool 'refnd' is stored; did you mean 'refund'?"),
        ("metric:polit=failed", "no metric 'polit' is stored; did you mean 'polite'?"),
        ("score:x<0.5", "no metric 'x' is stored; stored: polite"),
        ("version:1.4", "no version '1.4' is stored; stored: none"),
    ],
)
def test_a_value_that_nothing_has_is_named_if_no_case_matches(
    database: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    assert main(["cases", str(database), text]) == 0

    assert capsys.readouterr().err.rstrip().endswith(f"no case matches {text}; {says}")


@pytest.mark.parametrize(
    "words",
    [["--", "-tool:refund", "status:failed"], ["--limit", "9", "--", "-tool:refund", "status:failed"],
     ["status:failed", "--limit", "9", "--", "-tool:refund"]],
)  # fmt: skip
def test_a_filter_may_begin_with_a_minus_behind_two_of_them(
    database: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["cases", "--json", str(database), *words]) == 0

    found = sorted(one["eval_id"] for one in json.loads(capsys.readouterr().out))
    assert found == ["s-0", "s-4"]


@pytest.mark.parametrize("word", ["İADE", "ΟΔΟΣ", "οδοσ", "in:all İADE", "reason:ΟΔΟΣ"])
def test_a_word_is_found_in_every_alphabet(foreign: Store, word: str) -> None:
    ((_, _, eval_id),) = chosen_keys(foreign, Choice(parse_filter(word)))
    assert eval_id == "s-0"


def test_an_error_is_found_by_its_name_without_its_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [Asked("Pay.", error="shop.payments.QuotaError"), Asked("Hello.")]
    database = landed(tmp_path, asked, metrics=[])
    for named in ("error:QuotaError", "error:shop.payments.QuotaError", "error:shop.*"):
        capsys.readouterr()

        main(["cases", str(database), named, "--json"])

        assert [one["eval_id"] for one in json.loads(capsys.readouterr().out)] == ["s-0"]


def test_a_crash_without_a_type_is_an_error(tmp_path: Path) -> None:
    silent = {"status": "error"}
    told = {"status": "error", "error": {"message": "TimeoutError: too slow"}}
    asked = [Asked("A?", telemetry=silent), Asked("B?", telemetry=told), Asked("C?")]
    with Store(landed(tmp_path, asked, metrics=[])) as store:
        for text, found in (("error:*", ["s-0", "s-1"]), ("error:TimeoutError", ["s-1"])):
            chosen = chosen_keys(store, Choice(parse_filter(text)))
            assert sorted(eval_id for _, _, eval_id in chosen) == found


@pytest.mark.parametrize("term", ["error:TimeoutError", "error:*", 'in:all "too slow"'])
def test_an_error_of_a_tool_that_is_a_text_alone_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], term: str
) -> None:
    recorder = Recorder(tmp_path / "log.db", app_name="shop")
    for name, error in (("a", "TimeoutError: too slow"), ("b", None)):
        with recorder.turn(session_id=name, user="Where is it?") as turn:
            turn.tool("track", {}, result=1, error=error)
            turn.respond("I cannot say.")
    recorder.close()
    log, database = str(tmp_path / "log.db"), str(tmp_path / "x.duckdb")
    main(["consume", "--log", log, "--db", database, "--until-idle"])
    capsys.readouterr()

    main(["cases", database, term, "--json"])

    assert [one["eval_id"] for one in json.loads(capsys.readouterr().out)] == ["a"]
