"""Functions that wait together on one thread, and the same functions on separate threads."""

import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.scoring.waiting import (
    Condition,
    Together,
    in_thread,
    map_together,
    sleep,
    together,
    wait_for_socket,
)


def run(functions: list[Callable[[], object]], most: int = 500) -> list[object]:
    with Together[object](most, "test") as runner:
        return [future.result(20) for future in [runner.submit(one) for one in functions]]


def test_hundreds_of_waits_take_one_thread_and_the_time_of_one() -> None:
    threads: set[int] = set()

    def work(number: int) -> int:
        for _ in range(4):
            sleep(0.05)
            threads.add(threading.get_ident())
        return number

    began = time.monotonic()
    found = run([partial(work, number) for number in range(400)])

    assert time.monotonic() - began < 5  # one after the other: 80 s
    assert found == [*range(400)]
    assert len(threads) == 1


def test_no_more_are_under_way_than_allowed_and_all_get_their_turn() -> None:
    under_way: list[int] = []
    most = 0

    def work(number: int) -> int:
        nonlocal most
        under_way.append(number)
        most = max(most, len(under_way))
        sleep(0.001)
        under_way.remove(number)
        return number

    assert run([partial(work, number) for number in range(50)], most=7) == [*range(50)]
    assert most == 7


def test_what_blocks_gets_a_thread_while_the_others_go_on() -> None:
    done = threading.Event()

    def blocked() -> bool:
        return in_thread(done.wait, 20)

    def after() -> None:
        sleep(0.01)
        done.set()

    assert run([blocked, after]) == [True, None]


def test_an_error_reaches_the_function_that_waited_and_then_whoever_takes_the_result() -> None:
    caught: list[str] = []

    def fails() -> None:
        raise LookupError("inside")

    def work() -> None:
        try:
            in_thread(fails)
        except LookupError as error:
            caught.append(str(error))
            raise ValueError("again") from error

    with Together[None](2, "test") as runner, pytest.raises(ValueError, match="again"):
        runner.submit(work).result(20)

    assert caught == ["inside"]


def test_a_thread_and_a_greenlet_wake_each_other() -> None:
    turn, said, begun = Condition(), list[str](), threading.Event()

    def greenlet() -> None:
        with turn:
            begun.set()
            while "thread" not in said:
                assert turn.wait(10)
            said.append("greenlet")
            turn.notify_all()

    with Together[None](2, "test") as runner:
        ended = runner.submit(greenlet)
        assert begun.wait(10)
        with turn:
            said.append("thread")
            turn.notify_all()
            while "greenlet" not in said:
                assert turn.wait(10)
        ended.result(20)

    assert said == ["thread", "greenlet"]


def test_a_wait_ends_with_its_time_as_on_a_thread() -> None:
    def work() -> list[bool]:
        near, far = socket.socketpair()
        condition = Condition()
        with near, far, condition:
            silent = [condition.wait(0.01), wait_for_socket(near, 0.01)]
            far.send(b"x")
            return [*silent, wait_for_socket(near, 5), wait_for_socket(near, 5, writable=True)]

    assert work() == [False, False, True, True]
    assert run([work]) == [[False, False, True, True]]


def test_who_cancels_in_time_is_not_called_and_who_leaves_waits_for_the_rest() -> None:
    called: list[int] = []
    go = threading.Event()

    def work(number: int) -> None:
        assert together()
        in_thread(go.wait, 20)
        called.append(number)

    with Together[None](1, "test") as runner:
        futures = [runner.submit(partial(work, number)) for number in range(4)]
        assert [future.cancel() for future in futures[2:]] == [True, True]
        go.set()

    assert called == [0, 1]
    assert not together()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-3, 3), max_size=12), st.integers(1, 5))
def test_mapping_gives_the_same_on_greenlets_as_on_threads(items: list[int], most: int) -> None:
    def work(item: int) -> int:
        sleep(0.0005 * abs(item))
        return 6 // item

    def outcome() -> object:
        try:
            return map_together(work, items, most)
        except ZeroDivisionError:
            return "error"

    here = outcome()

    assert run([outcome]) == [here]
    assert here == ("error" if 0 in items else [6 // item for item in items])
