"""Reviews from the browser: the rows equal those of `evaltap review`, and roles are enforced."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

from evaltap.evaluator.curation.review.queue import items
from evaltap.evaluator.page.routes import ACTIONS, ActionRoute
from evaltap.evaluator.page.security.access import ROLES, Person
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from support.servers.page_server import SAME, Answer, Served, served
from support.worlds.page_store import GENEROUS, support_store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return support_store(tmp_path, count=20)


@pytest.fixture
def page(file: Path, tmp_path: Path) -> Iterator[Served]:
    with served(file, tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page whose store nobody minds."""
    folder = tmp_path_factory.mktemp("page")
    with served(support_store(folder, count=3), folder) as found:
        yield found


def post(page: Served, path: str, role: str = "reviewer", **form: str) -> Answer:
    return page.ask(path, "POST", role=role, headers=SAME, form=form)


def item_of(location: str | None) -> str:
    assert location is not None
    return location.partition("at=")[2].partition("&")[0]


@pytest.mark.slow
def test_decisions_are_rows_of_the_queue(page: Served) -> None:
    assert post(page, "/review/add", q="status:failed").headers["Location"] == "/review"
    shown = page.ask("/review", role="reviewer").text
    assert "6 left for you" in shown
    assert '<td data-label="items" class="num soft">6</td>' in shown

    first = item_of(post(page, "/review/next").headers["Location"])
    second = item_of(
        post(page, "/review/decide", item=first, action="approve", comment="fine", labels="tone, late")
        .headers["Location"]
    )  # fmt: skip
    edit = post(page, "/review/decide", item=second, action="edit", answer="Better.", tools="[]")
    assert f"done={second}" in (edit.headers["Location"] or "")
    third = item_of(edit.headers["Location"])
    post(page, "/review/decide", item=third, action="reject")
    undone = post(page, "/review/undo")
    assert item_of(undone.headers["Location"]) == third

    other = post(page, "/review/next", role="admin")
    assert item_of(other.headers["Location"]) not in ("", third)  # it is leased to the first

    assert page.ask(f"/review?at={third}", role="reviewer").status == 200
    states = {}
    answer = page.ask("/review?format=json", role="reviewer")
    assert b'"mine":2' in answer.body
    for one in (first, second, third):
        shown = page.ask(f"/review?at={one}", role="reviewer").text
        states[one] = "edited" in shown
    assert states == {first: False, second: True, third: False}


@pytest.mark.slow
def test_the_verdict_of_judges_is_hidden_until_a_decision(page: Served) -> None:
    post(page, "/review/add", app="shop", set="live", id=GENEROUS)
    at = item_of(post(page, "/review/next").headers["Location"])

    before = page.ask(f"/review?at={at}", role="reviewer").text
    assert "trajectory_f1" not in before
    assert "not called" in before
    done = post(page, "/review/decide", item=at, action="reject").headers["Location"] or ""
    assert "trajectory_f1" in page.ask(done, role="reviewer").text


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"item": "nobody", "action": "approve"}, "no item"),
        ({"item": "{at}", "action": "burn"}, "unknown decision"),
        ({"item": "{at}", "action": "edit", "tools": "{"}, "invalid JSON"),
        ({"item": "{at}", "action": "edit", "tools": '[{"no": 1}]'}, "expected tools"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(
    shared: Served, form: dict[str, str], says: str
) -> None:
    page = shared
    post(page, "/review/add", q="tool:refund")
    at = item_of(post(page, "/review/next").headers["Location"])
    sent = {name: value.replace("{at}", at) for name, value in form.items()}

    answer = post(page, "/review/decide", **sent)

    assert answer.status == 400
    assert says in answer.text
    assert b'"mine":0' in page.ask("/review?format=json", role="reviewer").body


@pytest.mark.slow
def test_the_same_turn_is_queued_once_and_a_case_leads_back(page: Served) -> None:
    here = f"/case?set=live&id={GENEROUS}&app=shop"
    for _ in range(2):
        answer = post(page, "/review/add", app="shop", set="live", id=GENEROUS, next=here)
        assert answer.headers["Location"] == here
    assert "queued for review" in page.ask(here).text
    assert "1 left" in page.ask("/review").text
    assert post(page, "/review/add", q="x", next="//evil.example").headers["Location"] == "/"


@pytest.mark.slow
def test_reviewers_who_ask_at_once_get_different_items(page: Served) -> None:
    post(page, "/review/add", q="status:failed")
    people = [f"reviewer {number}" for number in range(6)]
    for who in people:
        page.cookies[who] = page.access.log_in(Person(who, "reviewer"))

    with ThreadPoolExecutor(len(people)) as pool:
        asked = pool.map(lambda who: post(page, "/review/next", role=who), people)

    assert len({item_of(answer.headers["Location"]) for answer in asked}) == len(people)


@pytest.mark.slow
def test_two_reviewers_decide_on_what_is_queued_for_two(page: Served) -> None:
    case = urlencode({"app": "shop", "set": "live", "id": GENEROUS})
    post(page, "/review/add", case=case, twice="1")
    item = item_of(post(page, "/review/next").headers["Location"])
    edit = post(page, "/review/decide", item=item, action="edit", answer="Ten euros.", tools="[]")
    assert item_of(edit.headers["Location"]) == ""
    assert "0 left for you, 1 for others" in page.ask("/review", role="reviewer").text
    assert 'data-action="start-review"' in page.ask("/review", role="admin").text

    assert item_of(post(page, "/review/next", role="admin").headers["Location"]) == item
    for query in ("", "&format=json"):
        shown = page.ask(f"/review?at={item}{query}", role="admin").text
        assert "Ten euros." not in shown, "the first decision would sway the second"
        assert "edited" not in shown
    post(page, "/review/decide", role="admin", item=item, action="reject")

    queue = page.ask("/review?format=json", role="reviewer").body
    assert b'"waiting":1' in queue, "they disagree: a third decides"


@pytest.mark.parametrize("route", ACTIONS, ids=lambda route: route.path)
@pytest.mark.parametrize("role", [None, *ROLES])
def test_roles_by_action(shared: Served, route: ActionRoute, role: str | None) -> None:
    page = shared
    answer = page.ask(route.path, "POST", role=role, headers=SAME, form={"q": "tool:none"})
    if role is None:
        assert answer.status == 303
        assert "/login" in (answer.headers["Location"] or "")
    elif ROLES.index(role) < ROLES.index(route.role):
        assert answer.status == 403
    else:
        assert answer.status != 403
    assert page.ask(route.path, role="admin").status == 405  # nothing is changed by a GET
    assert page.ask(route.path, "POST", role="admin", form={}).status == 403


@pytest.mark.slow
def test_the_command_line_sees_what_the_page_wrote(file: Path, tmp_path: Path) -> None:
    with served(file, tmp_path) as page:
        post(page, "/review/add", q="tool:refund")
        at = item_of(post(page, "/review/next").headers["Location"])
        post(page, "/review/decide", item=at, action="approve")
    with Store(file) as store:
        (one,) = items(store)
        assert (one.state, one.verdict, one.reviewers) == ("approved", "good", ("a reviewer",))
        with Readers(store).reading() as reader:
            assert items(reader) == [one]
