"""From the page to an eval set: use as expected, pick, export, add to a set, and undo."""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.curation.review.queue import Wanted, add_items, decide, decisions, items
from evaltap.evaluator.page.request import key_text
from evaltap.evaluator.page.views.basket import exported_cases
from evaltap.evaluator.store.database import Store
from support.builders.cases import write_log
from support.servers.page_server import SAME, Answer, Served, served
from support.worlds.page_store import GENEROUS, support_cases, support_store
from support.worlds.shop import Asked, landed, records

if TYPE_CHECKING:
    from playwright.sync_api import Browser

KEYS = [("shop", "live", name) for name in (GENEROUS, "s-002", "s-003")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return support_store(tmp_path / "store", count=8)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.evalset.json"
    path.write_text('{"evalSetId": "golden", "evalCases": []}')
    return path


@pytest.fixture
def page(file: Path, golden: Path, tmp_path: Path) -> Iterator[Served]:
    with served(file, tmp_path, sets=(golden,)) as found:
        yield found


def post(page: Served, path: str, role: str = "reviewer", **form: str) -> Answer:
    return page.ask(path, "POST", role=role, headers=SAME, form=form)


def use(page: Served, key: tuple[str, str, str], role: str = "reviewer", **form: str) -> Answer:
    """Use what was done as expected, as the form of its page does."""
    shown = page.ask(f"/expected?{key_text(key)}", role=role).text
    seen = shown.partition('name="seen" value="')[2].partition('"')[0]
    sent = form or {f"turn-{place}": "1" for place in range(1, shown.count("data-turn-box") + 1)}
    return post(page, "/expected/use", role, **{"case": key_text(key), "seen": seen, **sent})


def pick(page: Served, *keys: tuple[str, str, str]) -> None:
    form = {f"case-{number}": key_text(key) for number, key in enumerate(keys)}
    assert post(page, "/basket/pick", next="/cases", **form).status == 303


def exported(page: Served, **form: str) -> Answer:
    return post(page, "/basket/export", **form)


@pytest.mark.slow
def test_what_was_done_is_expected_until_it_is_taken_back(page: Served, file: Path) -> None:
    shown = page.ask(f"/expected?{key_text(KEYS[0])}", role="reviewer").text
    assert "not called" in shown  # the difference to what was expected until now

    answer = use(page, KEYS[0])

    assert answer.headers["Location"] == f"/case?set=live&id={GENEROUS}&app=shop"
    case = page.ask(answer.headers["Location"], role="reviewer").text
    assert "turn 2 is expected" in case
    assert re.search(r"a reviewer, \d", case)
    assert exported(page).status == 400  # the basket is empty
    post(page, "/expected/undo", case=key_text(KEYS[0]))
    assert "turn 2 is expected" not in page.ask(answer.headers["Location"]).text


@pytest.mark.slow
def test_a_turn_is_expected_as_it_was_edited(page: Served) -> None:
    tools = json.dumps([{"name": "refund", "arguments": {"amount": 10}}])
    use(page, KEYS[0], **{"turn-2": "1", "answer-2": "You get 10 euros.\r\n", "tools-2": tools})
    pick(page, KEYS[0])

    (case,) = json.loads(exported(page).body)["evalCases"]

    assert case["conversation"][0].get("finalResponse") is None  # nothing is expected of turn 1
    assert case["conversation"][1]["finalResponse"]["content"] == "You get 10 euros."
    assert case["conversation"][1]["tools"][0]["arguments"] == {"amount": 10}
    assert case["source"]["curation"]["review"]["by"] == ["a reviewer"]


@pytest.mark.slow
def test_an_edit_is_of_what_was_recorded_not_of_what_another_reviewer_wrote(page: Served) -> None:
    tools = json.dumps([{"name": "refund", "arguments": {"amount": 10}}])
    use(page, KEYS[0], role="admin", **{"turn-2": "1", "answer-2": "You get nothing."})
    use(page, KEYS[0], **{"turn-2": "1", "tools-2": tools})
    pick(page, KEYS[0])

    (case,) = json.loads(exported(page).body)["evalCases"]

    turn = case["conversation"][1]
    assert turn["finalResponse"]["content"] == "I have refunded 10 euros for order A-100."
    assert [tool["name"] for tool in turn["tools"]] == ["refund"]
    assert len(case["source"]["curation"]["review"]["by"]) == 2


@pytest.mark.slow
def test_a_turn_that_changed_after_its_review_is_expected_as_it_is_now(tmp_path: Path) -> None:
    asked = Asked("Where is it?", answer="In Bern, please.")
    file = landed(tmp_path, [asked])
    key = ("shop", "live", "s-0")
    with Store(file) as store:
        add_items(store, [Wanted(*key, "t-0", "all", alone=True)])
        decide(store, items(store)[0], "ann", "approve")
    later = records([replace(asked, answer="In Basel.", source={"revision": 2})], producer_id="q")
    log = str(write_log(tmp_path / "later.db", later))
    main(["consume", "--log", log, "--db", str(file), "--until-idle", "--json"])

    with served(file, tmp_path) as page:
        answer = use(page, key)

    with Store(file) as store:
        assert answer.status == 303
        assert decisions(store).by[key]["t-0"]["by"] == ["a reviewer"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({}, "no turn chosen"),
        ({"turn-2": "1", "seen": "another"}, "has a new turn or revision"),
        ({"turn-2": "1", "tools-2": "{"}, "invalid JSON"),
        ({"turn-2": "1", "tools-2": "[1]"}, "expected tools"),
        ({"turn-2": "1", "case": "id=nobody"}, "nobody"),
    ],
)
def test_what_cannot_be_expected_is_refused(page: Served, form: dict[str, str], says: str) -> None:
    shown = page.ask(f"/expected?{key_text(KEYS[0])}", role="reviewer").text
    seen = shown.partition('name="seen" value="')[2].partition('"')[0]

    answer = post(page, "/expected/use", **{"case": key_text(KEYS[0]), "seen": seen, **form})

    assert answer.status == 400
    assert says in answer.text
    assert page.ask("/changes?format=json", role="reviewer").text.count('"approved"') == 0


@pytest.mark.slow
def test_equal_turns_of_two_sessions_are_decided_apart(tmp_path: Path) -> None:
    twin = {**support_cases(1)[0], "evalId": "twin"}
    path = support_store(tmp_path / "store", cases=[support_cases(1)[0], twin])
    with served(path, tmp_path) as page:
        use(page, ("shop", "live", "twin"), **{"turn-1": "1"})
        use(page, ("shop", "live", "s-000"), **{"turn-1": "1"})
    with Store(path) as store:
        assert {key[2] for key in decisions(store).approved} == {"twin", "s-000"}


@pytest.mark.slow
def test_the_basket_opens_with_a_content_that_yields_cases(file: Path, tmp_path: Path) -> None:
    with served(file, tmp_path) as page:
        pick(page, KEYS[0])
        opened = json.loads(page.ask("/basket?format=json", role="reviewer").body)["data"]
        asked_for = json.loads(page.ask("/basket?as=expected&format=json", role="reviewer").body)

    assert (opened["wanted"]["content"], opened["made"]) == ("recorded", 1)
    assert asked_for["data"]["made"] == 0


CONTENTS = [
    ("recorded", ["set export"], ".evalset.json"),
    ("expected", ["curate", "--as", "expected", "--all"], ".evalset.json"),
    ("inputs", ["curate", "--as", "inputs", "--all"], ".evalset.json"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("content", "command", "ending"), CONTENTS)
def test_an_export_is_what_the_command_beside_it_writes(
    file: Path, tmp_path: Path, content: str, command: list[str], ending: str
) -> None:
    with served(file, tmp_path) as page:
        for key in KEYS:
            use(page, key)
        pick(page, *KEYS)
        shown = page.ask(f"/basket?as={content}&format=json", role="reviewer").body
        answer = exported(page, **{"as": content, "name": "mine"})
    told = json.loads(shown)["data"]["commands"][0]
    out = tmp_path / f"mine{ending}"
    filter_ = f"id:s-002,s-003,{GENEROUS}"

    assert (
        main([*command[0].split(), str(file), *command[1:], "--filter", filter_, "--out", str(out)])
        == 0
    )

    assert answer.body == out.read_bytes()
    assert f"filename*=UTF-8''mine{ending}" in (answer.headers["Content-Disposition"] or "")
    assert told.startswith(f"evaltap {command[0]} ")
    assert filter_ in told


@pytest.mark.parametrize("form", ["adk", "jsonl", "deepeval", "promptfoo", "pytest"])
def test_other_tools_get_their_own_forms(page: Served, form: str) -> None:
    pick(page, KEYS[1])
    answer = exported(page, **{"as": "recorded", "format": form})
    assert answer.status == 200
    assert b"get_order" in answer.body


def test_json_lines_name_their_set(page: Served) -> None:
    pick(page, *KEYS)
    answer = exported(page, **{"as": "inputs", "format": "jsonl", "name": "mine"})
    assert {json.loads(line)["evalSetId"] for line in answer.body.splitlines()} == {"mine"}


@pytest.mark.parametrize(("form", "ids"), [("trpc", ["s", "s"]), ("langfuse", ["s@1", "s@2"])])
def test_repeats_have_an_id_each_where_a_form_cannot_tell_them_apart(
    tmp_path: Path, form: str, ids: list[str]
) -> None:
    runs = [Asked("Where is it?", session="s", source={"run": run}) for run in "12"]
    with Store(landed(tmp_path, runs, metrics=[])) as store:
        keys = [
            tuple(row) for row in store.rows("SELECT app_name, eval_set_id, eval_id FROM cases")
        ]
        made = exported_cases(store, keys, "recorded", dict, form)

    assert [case["evalId"] for case in made.cases] == ids


def test_a_text_that_promptfoo_would_load_is_left_out_and_said(tmp_path: Path) -> None:
    asked = [Asked("file:///etc/passwd", session="bad"), Asked("Where is it?", session="good")]
    with Store(landed(tmp_path, asked, metrics=[])) as store:
        keys = [
            tuple(row) for row in store.rows("SELECT app_name, eval_set_id, eval_id FROM cases")
        ]
        made = exported_cases(store, keys, "recorded", dict, "promptfoo")

    assert [case["evalId"] for case in made.cases] == ["good"]
    assert [one["turn"] for one in made.left_out] == ["bad"]


def test_a_form_of_several_files_comes_as_an_archive(page: Served) -> None:
    pick(page, KEYS[1])
    answer = exported(page, **{"as": "recorded", "format": "huggingface", "name": "../evil"})
    archive = zipfile.ZipFile(io.BytesIO(answer.body))
    assert archive.namelist() == ["evil/README.md", "evil/data/test.jsonl"]


@pytest.mark.slow
def test_cases_that_nobody_approved_are_left_out_and_said(page: Served) -> None:
    use(page, KEYS[1])
    pick(page, *KEYS)
    data = json.loads(page.ask("/basket?format=json", role="reviewer").body)["data"]
    assert data["made"] == 1
    assert {one["turn"] for one in data["left_out"]} == {GENEROUS, "s-003"}


@pytest.mark.slow
def test_a_set_takes_the_basket_and_gives_it_back(page: Served, golden: Path) -> None:
    use(page, KEYS[1])
    pick(page, KEYS[1])

    answer = post(page, "/basket/add-to-set", file=golden.name)

    assert answer.status == 303
    (case,) = read_set(golden).cases
    assert case["source"]["curation"]["from"]["evalId"] == "s-002"
    assert post(page, "/basket/add-to-set", file=golden.name).status == 400  # it has them
    assert post(page, "/basket/add-to-set", file="other.json").status == 400
    lines = json.loads(page.ask("/changes?format=json", role="reviewer").body)["data"]["lines"]
    assert [one["words"] for one in lines[:3]] == ["added to", "added to the basket", "approved"]
    assert lines[0]["who"] == "a reviewer"
    assert post(page, "/changes/undo", change=lines[0]["change_id"]).status == 303
    assert read_set(golden).cases == ()
    again = post(page, "/changes/undo", change=lines[0]["change_id"])
    assert "it is already undone" in again.text


@pytest.mark.slow
def test_a_basket_is_ones_own_and_every_change_can_be_taken_back_once(page: Served) -> None:
    pick(page, *KEYS)
    assert "Your basket is empty" in page.ask("/basket", role="admin").text
    post(page, "/basket/drop", case=key_text(KEYS[0]))
    lines = json.loads(page.ask("/changes?format=json", role="reviewer").body)["data"]["lines"]
    (dropped,) = [one for one in lines if one["words"] == "removed from the basket"]
    others = post(page, "/changes/undo", role="admin", change=dropped["change_id"])
    assert "not yours" in others.text
    post(page, "/changes/undo", change=dropped["change_id"])
    data = json.loads(page.ask("/basket?format=json", role="reviewer").body)["data"]
    assert {one["case"]["eval_id"] for one in data["picked"]} == {key[2] for key in KEYS}
    post(page, "/basket/drop", all="1")
    assert "Your basket is empty" in page.ask("/basket", role="reviewer").text


def test_all_cases_of_a_filter_are_picked(page: Served) -> None:
    post(page, "/basket/pick", all="1", q="tool:track_parcel", next="/cases")
    data = json.loads(page.ask("/basket?format=json&as=recorded", role="reviewer").body)["data"]
    assert data["made"] == len(data["picked"]) == 6
    assert post(page, "/basket/pick", all="1", q="stats:x").status == 400


@pytest.mark.slow
def test_an_admin_takes_back_what_a_reviewer_decided(page: Served) -> None:
    use(page, KEYS[1])
    lines = json.loads(page.ask("/changes?format=json").body)["data"]["lines"]
    (approved,) = [one for one in lines if one["words"] == "approved"]
    assert post(page, "/changes/undo", role="admin", change=approved["change_id"]).status == 303
    case = page.ask("/case?set=live&id=s-002&app=shop").text
    assert "is expected" not in case


@pytest.mark.slow
@pytest.mark.browser
def test_a_failing_step_becomes_expected_and_leaves_as_a_set_by_keys(
    browser: "Browser", file: Path, tmp_path: Path
) -> None:
    with served(file, tmp_path) as site:
        context = browser.new_context(accept_downloads=True)
        page = context.new_page()
        page.goto(site.link("reviewer"))
        page.wait_for_url(f"{site.site.address}/")
        page.goto(f"{site.site.address}/cases?q=status:failed+-status:crashed&sort=worst")
        press = page.keyboard.press
        press("j")
        press("x")
        press("j")
        press("x")
        assert page.inner_text("[data-count]") == "2 picked"
        with page.expect_navigation():
            press("b")
        assert page.inner_text("nav .count") == "2"
        press("j")
        press("Enter")
        page.wait_for_url("**/case?*")
        press("=")
        page.wait_for_url("**/expected?*")
        press("=")
        page.wait_for_url("**/case?*")
        assert "is expected" in page.inner_text(".verdicts")
        press("g")
        press("b")
        page.wait_for_url("**/basket")
        with page.expect_download() as download:
            page.click("text=Download 1 case")
        saved = tmp_path / "basket.evalset.json"
        download.value.save_as(saved)
        context.close()
    assert len(read_set(saved).cases) == 1
    metrics = tmp_path / "store" / "metrics.json"
    assert main(["score", str(file), "--references", str(saved), "--metrics", str(metrics)]) in (
        0,
        1,
    )
