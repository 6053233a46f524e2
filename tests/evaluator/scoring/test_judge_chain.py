"""The layers around a judge's client: cache, retries, limits, budget, prices."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.scoring.contract.judge import (
    AnswerFormRefusedError,
    BudgetSpentError,
    JudgeInvalid,
    JudgeRejected,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
    ScriptedJudge,
)
from evaltap.evaluator.scoring.evaluators.judged.delimiters import delimited, fresh_nonce
from evaltap.evaluator.scoring.judges.budget import (
    Budget,
    BudgetedJudge,
    BudgetLimits,
    worst_tokens,
)
from evaltap.evaluator.scoring.judges.cache import CachedJudge, JudgeCache, cache_from, default_path
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.evaluator.scoring.judges.limits import LimitedJudge, Limiter
from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges
from evaltap.evaluator.scoring.judges.retries import RetryingJudge
from evaltap.evaluator.scoring.judges.retry_after import retry_after
from evaltap.evaluator.scoring.judges.settings import JudgeLimits, judge_limits
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.metric import GenerationConfig, JudgeModel
from support.builders.judge_requests import PRICED, REQUEST, SETTINGS


def number(text: str) -> int:
    """Read an answer that must be a number."""
    if not text.isdigit():
        raise JudgeInvalid(f"found {text!r}")
    return int(text)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[JudgeCache]:
    with_answers = JudgeCache(tmp_path / "answers.db")
    yield with_answers
    with_answers.close()


def material(text: str, nonce: str = "") -> JudgeRequest:
    word = nonce or fresh_nonce([text])
    return JudgeRequest(f"Grade {word}:\n{delimited('text', text, word)}", nonce=word, check=number)


def test_the_same_question_is_paid_for_once_although_its_fences_differ(cache: JudgeCache) -> None:
    asked = ScriptedJudge([JudgeReply("7", "m", 10, 5, timedelta(seconds=1), 0.25)])
    judge = CachedJudge(asked, cache, SETTINGS)

    first, again = judge.answer(material("some text")), judge.answer(material("some text"))

    assert (first.text, first.cached, first.cost_usd) == ("7", False, 0.25)
    assert (again.text, again.model, again.cached) == ("7", "m", True)
    assert (again.input_tokens, again.output_tokens, again.cost_usd) == (0, 0, 0.0)
    assert again.saved_usd == 0.25
    assert len(asked.requests) == 1


class HeldJudge:
    """Answers when it is let go, and counts who asks."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers
        self.begun, self.go = threading.Semaphore(0), threading.Event()

    def answer(self, request: JudgeRequest) -> JudgeReply:
        text = self.answers.pop(0)
        self.begun.release()
        assert self.go.wait(20)
        return JudgeReply(text, "m", 10, 5, timedelta(seconds=1), 0.25)


def ask_together(judge: CachedJudge, held: HeldJudge, count: int) -> list[JudgeReply]:
    """Ask one question in as many threads; the judge is let go when all are at it."""
    start = threading.Barrier(count)

    def ask() -> JudgeReply:
        if start.wait(20) != 0:
            held.begun.acquire(timeout=20)
            held.begun.release()
        return judge.answer(material("some text"))

    with ThreadPoolExecutor(count) as pool:
        replies = [pool.submit(ask) for _ in range(count)]
        held.begun.acquire(timeout=20)
        held.begun.release()
        held.go.set()
        return [reply.result(20) for reply in replies]


def test_a_question_that_several_threads_ask_at_once_is_paid_for_once(cache: JudgeCache) -> None:
    held = HeldJudge(["7"] * 6)

    replies = ask_together(CachedJudge(held, cache, SETTINGS), held, 6)

    assert len(held.answers) == 5
    assert sorted(reply.cached for reply in replies) == [False] + [True] * 5


def test_whoever_waited_for_an_answer_that_cannot_be_kept_asks_too(cache: JudgeCache) -> None:
    held = HeldJudge(["garbage", "7", "7", "7"])
    judge = CachedJudge(held, cache, SETTINGS)

    replies = ask_together(judge, held, 3)

    assert sorted(reply.text for reply in replies)[:2] == ["7", "7"]
    assert judge.answer(material("some text")).cached


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": "Is it not?"},
        {"answer_name": "grade"},
        {"answer_schema": {"type": "array"}},
        {"answer_schema": None},
        {"generation": GenerationConfig(temperature=0.1)},
        {"generation": GenerationConfig(seed=3, max_tokens=2000, temperature=0.8)},
        {"sample": 1},
        {"version": "2"},
    ],
    ids=str,
)
def test_whatever_could_change_the_answer_is_in_the_key(
    cache: JudgeCache, other: dict[str, Any]
) -> None:
    judge = CachedJudge(ScriptedJudge([]), cache, SETTINGS)

    assert judge.key(REQUEST) == judge.key(replace(REQUEST))
    assert judge.key(REQUEST) != judge.key(replace(REQUEST, **other))


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, model="m-2"),
        replace(SETTINGS, base_url="http://other/v1"),
        replace(SETTINGS, provider="p"),
        replace(SETTINGS, extra_body={"top_k": 1}),
    ],
    ids=lambda one: f"{one.model} {one.base_url} {one.provider} {one.extra_body}",
)
def test_another_judge_has_other_keys_and_another_key_or_time_out_has_not(
    cache: JudgeCache, settings: JudgeSettings
) -> None:
    one, other = (CachedJudge(ScriptedJudge([]), cache, each) for each in (SETTINGS, settings))
    same = replace(SETTINGS, api_key="other", timeout=timedelta(seconds=1))

    assert one.key(REQUEST) != other.key(REQUEST)
    assert one.key(REQUEST) == CachedJudge(ScriptedJudge([]), cache, same).key(REQUEST)


TEXTS = st.lists(st.sampled_from(["a", "b", "\n", "<<<", ">>>", "begin", "end", "NONCE", " "])).map(
    "".join
)


@given(st.tuples(TEXTS, TEXTS), st.tuples(TEXTS, TEXTS))
def test_two_materials_share_a_key_only_when_they_are_the_same(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    # Content that imitates fences must not make two different questions look the same.
    judge = CachedJudge(ScriptedJudge([]), _NO_CACHE, SETTINGS)

    def key(texts: tuple[str, str]) -> bytes:
        word = fresh_nonce(texts)
        parts = (delimited(f"text {place}", text, word) for place, text in enumerate(texts))
        return judge.key(JudgeRequest("".join(parts), nonce=word))

    assert (key(one) == key(other)) is (one == other)


_NO_CACHE: Any = None  # keys need no file


@pytest.mark.parametrize("failure", ["no number", JudgeUnavailable("down"), JudgeInvalid("broken")])
def test_what_cannot_be_used_is_not_kept(cache: JudgeCache, failure: str | Exception) -> None:
    judge = CachedJudge(ScriptedJudge([failure, "7"]), cache, SETTINGS)

    if isinstance(failure, Exception):
        with pytest.raises(type(failure)):
            judge.answer(material("t"))
    else:
        assert judge.answer(material("t")).text == failure

    assert judge.answer(material("t")) == JudgeReply("7")
    assert judge.answer(material("t")).cached


def test_an_answer_that_repeats_the_word_of_its_fences_is_not_kept(cache: JudgeCache) -> None:
    asked = ScriptedJudge(lambda request: f"between fences {request.nonce}")
    judge = CachedJudge(asked, cache, SETTINGS)
    request = replace(material("t", "w0rd"), check=None)

    judge.answer(request)

    assert judge.answer(replace(request)).cached is False
    assert len(asked.requests) == 2


def test_a_kept_answer_that_is_no_longer_understood_is_asked_anew(cache: JudgeCache) -> None:
    judge = CachedJudge(ScriptedJudge(["yes", "7"]), cache, SETTINGS)
    judge.answer(replace(material("t"), check=None))

    assert judge.answer(material("t")) == JudgeReply("7")


def test_threads_and_connections_share_the_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    caches = [JudgeCache(path) for _ in range(2)]
    judges = [
        CachedJudge(ScriptedJudge(lambda request: str(len(request.prompt))), one, SETTINGS)
        for one in caches
    ]

    def work(place: int) -> str:
        return judges[place % 2].answer(JudgeRequest("x" * (place % 50), check=number)).text

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, range(400)))

    assert answers == [str(place % 50) for place in range(400)]
    assert [one.problem for one in caches] == ["", ""]
    for one in caches:
        one.close()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM replies").fetchone() == (50,)


@pytest.mark.parametrize("content", [b"not a database at all, but some text" * 100, None])
def test_a_file_that_is_no_cache_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "f.db"
    if content is None:
        with closing(sqlite3.connect(path)) as file:
            file.execute("CREATE TABLE mine (x)")
    else:
        path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"judge cache .* cannot be opened"):
        JudgeCache(path)


def test_only_its_owner_reads_the_file(cache: JudgeCache) -> None:
    assert cache.path.stat().st_mode & 0o077 == 0


def test_where_the_cache_is_argument_environment_default(tmp_path: Path) -> None:
    environ = {"EVALTAP_JUDGE_CACHE": str(tmp_path / "env.db"), "XDG_CACHE_HOME": str(tmp_path)}

    by_argument, by_environment = (
        cache_from(str(tmp_path / "a.db"), environ),
        cache_from("", environ),
    )

    assert by_argument is not None
    assert by_environment is not None
    assert (by_argument.path.name, by_environment.path.name) == ("a.db", "env.db")
    assert cache_from("off", environ) is None
    assert cache_from("", {"EVALTAP_JUDGE_CACHE": "off"}) is None
    assert default_path(environ) == tmp_path / "evaltap" / "judge-cache.db"
    by_argument.close()
    by_environment.close()


def test_retries_back_off_and_do_as_the_server_asks() -> None:
    waits: list[float] = []
    failures = [
        JudgeUnavailable("a"),
        JudgeUnavailable("b", retry_after=timedelta(seconds=90)),
        JudgeUnavailable("c"),
    ]
    judge = RetryingJudge(
        ScriptedJudge([*failures, "yes"]), 3, sleep=waits.append, chance=lambda: 0
    )

    assert judge.answer(REQUEST).text == "yes"
    assert waits == [0.5, 90, 2.0]


def test_a_server_that_asks_for_too_much_patience_is_given_up() -> None:
    waits: list[float] = []
    hours = JudgeUnavailable("busy", retry_after=timedelta(hours=2))
    judge = RetryingJudge(ScriptedJudge([hours, "yes"]), 3, sleep=waits.append)

    with pytest.raises(
        JudgeUnavailable,
        match=r"busy; gave up after 1 try, because the server requests a delay of 7200 s",
    ):
        judge.answer(REQUEST)

    assert waits == []


def test_a_simpler_form_of_answer_is_asked_for_at_once_and_is_no_retry() -> None:
    simpler = replace(REQUEST, form=1)
    asked = ScriptedJudge([AnswerFormRefusedError("json_schema", simpler), "yes"])

    assert RetryingJudge(asked, 0).answer(REQUEST).text == "yes"
    assert asked.requests == [REQUEST, simpler]


@pytest.mark.parametrize(
    "error", [JudgeRejected("key"), JudgeInvalid("no"), BudgetSpentError("over")]
)
def test_only_an_unavailable_judge_is_asked_again(error: Exception) -> None:
    asked = ScriptedJudge([error, "yes"])

    with pytest.raises(type(error)):
        RetryingJudge(asked, 5).answer(REQUEST)

    assert len(asked.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "99999999999"}, 86400),
        ({"retry-after": "-4"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Foo 99999999999 07:28:00 GMT"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_every_form_of_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    found = retry_after(headers)

    assert found == (None if seconds is None else timedelta(seconds=seconds))


class Clock:
    """A clock that moves only when somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wait(self, _: threading.Condition, seconds: float | None) -> None:
        assert seconds is not None
        self.now += seconds


@given(st.lists(st.integers(1, 120), max_size=60), st.integers(1, 9), st.integers(60, 300))
def test_no_minute_holds_more_requests_or_tokens_than_allowed(
    sizes: list[int], requests: int, tokens: int
) -> None:
    clock = Clock()
    limiter = Limiter(JudgeLimits(None, requests, tokens), clock=clock, wait=clock.wait)
    seen: list[tuple[float, int]] = []

    for size in sizes:
        admitted = limiter.enter(size)
        seen.append((clock.now, min(size, tokens)))
        clock.now += 0.5
        limiter.leave(admitted, min(size, tokens))

    for at, _ in seen:
        minute = [size for when, size in seen if at <= when < at + 60]
        assert len(minute) <= requests
        assert sum(minute) <= tokens


def test_an_answer_cheaper_than_feared_makes_room() -> None:
    clock = Clock()
    limiter = Limiter(JudgeLimits(tokens_per_minute=100), clock=clock, wait=clock.wait)

    limiter.leave(limiter.enter(100), 10)
    limiter.enter(90)

    assert clock.now == 1000.0


def test_no_more_requests_are_under_way_than_allowed() -> None:
    under_way, most, lock = 0, 0, threading.Lock()
    pause = threading.Event()

    def slowly(request: JudgeRequest) -> str:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        pause.wait(0.002)
        with lock:
            under_way -= 1
        return "yes"

    limiter = Limiter(JudgeLimits(concurrency=3))
    judge = LimitedJudge(ScriptedJudge(slowly), limiter)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(judge.answer, [REQUEST] * 60))

    assert most == 3


def test_when_a_server_asks_to_wait_nobody_asks_it_meanwhile() -> None:
    clock = Clock()
    limiter = Limiter(clock=clock, wait=clock.wait)
    busy = JudgeUnavailable("busy", retry_after=timedelta(seconds=30))
    judge = LimitedJudge(ScriptedJudge([busy, "yes"]), limiter)

    with pytest.raises(JudgeUnavailable):
        judge.answer(REQUEST)
    judge.answer(REQUEST)

    assert clock.now == 1030.0


def test_metrics_that_use_the_same_judge_share_its_limits() -> None:
    environ = {"EVALTAP_JUDGE_BASE_URL": "http://127.0.0.1:9/v1", "EVALTAP_JUDGE_RPM": "5"}
    judges = EnvironmentJudges(environ)

    one = judges(JudgeModel(model_name="m"))
    other = judges(JudgeModel(model_name="m", extra_fields={"top_k": 1}))
    another = judges(JudgeModel(model_name="n"))

    assert one is not other
    assert one.limiter is other.limiter
    assert one.limiter is not another.limiter


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "9" * 40, "\u0663"])
def test_a_limit_that_makes_no_sense_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="EVALTAP_JUDGE_RPM"):
        judge_limits({"EVALTAP_JUDGE_RPM": text})


def ask(size: int = 100, most: int = 50) -> JudgeRequest:
    return JudgeRequest("x" * size, generation=GenerationConfig(max_tokens=most))


@pytest.mark.parametrize("limits", [BudgetLimits(tokens=3000), BudgetLimits(usd=0.004),
                                    BudgetLimits(calls=7)], ids=str)  # fmt: skip
def test_the_budget_is_never_passed_however_many_threads_ask(limits: BudgetLimits) -> None:
    spent = {"tokens": 0, "usd": 0.0, "calls": 0}
    lock = threading.Lock()

    def bill(request: JudgeRequest) -> JudgeReply:
        used = worst_tokens(request)
        with lock:
            spent["tokens"] += sum(used)
            spent["usd"] += (used[0] + 2 * used[1]) / 1e6
            spent["calls"] += 1
        return JudgeReply("yes", "m", *used)

    budget = Budget(limits)
    judge = BudgetedJudge(ScriptedJudge(bill), budget, PRICED)

    def work(_: int) -> bool:
        try:
            judge.answer(ask())
        except BudgetSpentError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        answered = list(pool.map(work, range(60)))

    assert 0 < sum(answered) < 60
    assert spent["tokens"] <= (limits.tokens or spent["tokens"])
    assert spent["usd"] <= (limits.usd or spent["usd"])
    assert spent["calls"] <= (limits.calls or spent["calls"])
    assert budget.refused == 60 - sum(answered)
    # Nothing is left that one more request would have fitted into.
    with pytest.raises(BudgetSpentError, match="budget spent: "):
        judge.answer(ask())


def test_what_is_set_aside_and_not_used_is_given_back() -> None:
    budget = Budget(BudgetLimits(tokens=sum(worst_tokens(ask())) + 30))
    judge = BudgetedJudge(ScriptedJudge(lambda _: JudgeReply("y", "m", 8, 2)), budget, SETTINGS)

    for _ in range(4):
        judge.answer(ask())

    assert budget.spent.tokens == 40
    with pytest.raises(BudgetSpentError, match="40 of"):
        judge.answer(ask())


def test_a_request_waits_for_what_others_may_give_back() -> None:
    first_asked, release = threading.Event(), threading.Event()

    def slowly(request: JudgeRequest) -> JudgeReply:
        if not first_asked.is_set():
            first_asked.set()
            release.wait(10)
        return JudgeReply("y", "m", 1, 1)

    budget = Budget(BudgetLimits(tokens=sum(worst_tokens(ask())) + 10))
    judge = BudgetedJudge(ScriptedJudge(slowly), budget, SETTINGS)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(judge.answer, ask())
        first_asked.wait(10)
        second = pool.submit(judge.answer, ask())
        release.set()

        assert first.result(10).text == second.result(10).text == "y"


@pytest.mark.parametrize(
    ("failure", "tokens"),
    [
        (JudgeRejected("401"), 0),
        (JudgeUnavailable("refused"), 0),
        (JudgeUnavailable("timed out", maybe_billed=True), sum(worst_tokens(ask()))),
        (JudgeInvalid("broken"), sum(worst_tokens(ask()))),
        (JudgeInvalid("empty", reply=JudgeReply("", "m", 9, 1)), 10),
        (RuntimeError("a fault"), sum(worst_tokens(ask()))),
    ],
    ids=repr,
)
def test_what_may_have_been_billed_counts_as_spent(failure: Exception, tokens: int) -> None:
    budget = Budget(BudgetLimits(tokens=10_000))
    judge = BudgetedJudge(ScriptedJudge([failure]), budget, SETTINGS)

    with pytest.raises(type(failure)):
        judge.answer(ask())

    assert (budget.spent.tokens, budget.spent.calls) == (tokens, 1)


def test_an_answer_without_usage_counts_with_the_worst_case() -> None:
    budget = Budget(BudgetLimits(usd=1.0))
    BudgetedJudge(ScriptedJudge(["y"]), budget, PRICED).answer(ask(36, 50))

    assert budget.spent.usd == pytest.approx((36 + 64 + 2 * 50) / 1e6)


def test_a_bill_above_the_bound_closes_the_budget() -> None:
    budget = Budget(BudgetLimits(tokens=1000))
    asked = ScriptedJudge(lambda _: JudgeReply("y", "m", 10, 5000))
    judge = BudgetedJudge(asked, budget, SETTINGS)

    judge.answer(ask())

    with pytest.raises(BudgetSpentError, match="5010 of 1000 tokens"):
        judge.answer(ask())
