"""Answers that are read once for all concurrent requests."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaltap.evaluator.page.request import SharedAnswers
from evaltap.evaluator.page.security.access import Person
from support.servers.page_server import served
from support.worlds.page_store import support_store


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """What is read: a new number each time, which takes a while."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds, self.reads = clock, seconds, 0

    def __call__(self) -> int:
        self.clock.now += self.seconds
        self.reads += 1
        return self.reads


def good(_: int) -> bool:
    return True


@pytest.mark.parametrize(("took", "kept"), [(0.01, 0.2), (0.1, 2.0), (1.0, 5.0)])
def test_an_answer_is_kept_for_twenty_times_as_long_as_it_took(took: float, kept: float) -> None:
    clock = Clock()
    answers, read = SharedAnswers[int](clock), Source(clock, took)

    assert answers.get("a", read, is_good=good) == 1
    clock.now += 0.9 * kept
    assert answers.get("a", read, is_good=good) == 1
    clock.now += 0.2 * kept
    assert answers.get("a", read, is_good=good) == 2


def test_each_key_has_its_own_answer_and_a_bad_one_is_not_kept() -> None:
    clock = Clock()
    answers, read = SharedAnswers[int](clock), Source(clock, 1)

    assert [answers.get(key, read, is_good=good) for key in "abab"] == [1, 2, 1, 2]
    assert [answers.get("c", read, is_good=lambda _: False) for _ in range(2)] == [3, 4]


def test_what_was_not_asked_for_longest_is_given_up() -> None:
    clock = Clock()
    answers, read = SharedAnswers[int](clock), Source(clock, 0.05)

    for number in range(200):
        answers.get(number, read, is_good=good)
        clock.now -= 0.05  # as if all had been asked for at once

    assert answers.get(199, read, is_good=good) == 200
    assert answers.get(0, read, is_good=good) == 201


def test_who_asks_while_it_is_read_gets_the_same_answer() -> None:
    answers: SharedAnswers[int] = SharedAnswers()
    begun, may_end = threading.Event(), threading.Event()
    reads = []

    def read() -> int:
        reads.append(1)
        begun.set()
        assert may_end.wait(30)
        return len(reads)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(answers.get, "a", read, is_good=good)
        assert begun.wait(30)
        others = [pool.submit(answers.get, "a", read, is_good=good) for _ in range(3)]
        may_end.set()
        assert {one.result(30) for one in (first, *others)} == {1}


def test_nobody_waits_for_what_takes_long_if_the_last_answer_has_just_expired() -> None:
    clock, begun, may_end = Clock(), threading.Event(), threading.Event()
    answers, source = SharedAnswers[int](clock, late_seconds=1.0), Source(clock, 0.2)

    def slowly() -> int:
        begun.set()
        assert may_end.wait(30)
        return source()

    assert answers.get("a", source) == 1
    clock.now += 4.5  # kept for 4 seconds
    assert answers.get("a", slowly) == 1
    assert begun.wait(30)
    assert answers.get("a", source) == 1  # another thread reads it
    may_end.set()
    while source.reads < 2 or answers.get("a", source) == 1:
        time.sleep(0.01)

    assert answers.get("a", source) == 2
    clock.now += 5.1
    assert answers.get("a", source) == 3


def test_what_is_read_quickly_is_never_late() -> None:
    clock = Clock()
    answers, read = SharedAnswers[int](clock, late_seconds=1.0), Source(clock, 0.01)

    assert answers.get("a", read) == 1
    clock.now += 0.21

    assert answers.get("a", read) == 2


@pytest.mark.slow
def test_a_shared_page_names_the_reader_who_asked(tmp_path: Path) -> None:
    with served(support_store(tmp_path, count=10), tmp_path) as site:
        pages = []
        for name in ("ann", "ben"):
            site.cookies["admin"] = site.access.log_in(Person(name, "admin"))
            pages.append(site.ask("/").text)

        assert all('href="/settings"' in page for page in pages)
        assert ["ann" in pages[0], "ben" in pages[1], "ann" in pages[1]] == [True, True, False]
