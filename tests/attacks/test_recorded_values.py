"""Values that are dangerous to copy: changing, endless, huge, shared, lazy, or broken."""

import cProfile
import mmap
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, create_model

from attacks.programs import attack
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.copying import PlainCopy, freeze, json_size, thaw
from evaltap.recorder.observation import failure_of

LIMIT = 65_536

SHARED_STATE = """
import sys, threading, time
from pydantic import BaseModel
from evaltap.recorder import MemorySink, Recorder
class Item(BaseModel):
    number: int = 1
    text: str = "x" * 50
state = {str(n): Item(number=n) for n in range(50)}
state["list"] = [Item() for _ in range(50)]
stop = False
def change():
    n = 0
    while not stop:
        n += 1
        state.pop(str(n % 50), None)
        state[str((n * 7) % 50)] = Item(number=n)
        state["list"] = [Item() for _ in range(n % 50)]
        state["list"].clear()
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=change); thread.start()
recorder = Recorder(sink=MemorySink())
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    with recorder.turn(session_id="s", user="u", state=state) as turn:
        turn.tool("t", state, result=state)
stop = True
thread.join()
recorder.close()
assert recorder.counters().faults == 0, recorder.counters()
"""


@pytest.mark.slow
def test_state_that_another_thread_changes_crashes_nothing() -> None:
    attack(SHARED_STATE, "3")


@pytest.mark.slow
def test_state_that_another_thread_changes_crashes_nothing_in_ten_seconds() -> None:
    attack(SHARED_STATE, "10")


@pytest.mark.slow
def test_an_object_cannot_change_what_it_is_in_while_it_is_written() -> None:
    attack("""
from evaltap.recorder.copying import freeze
class Relation:
    def __init__(self, parent): self.parent = parent
    def model_dump(self, mode): self.parent.clear(); self.parent.extend(range(1000)); return {}
    tolist = model_dump
for _ in range(2000):
    parent = []
    parent.extend([Relation(parent) for _ in range(30)])
    freeze(parent, 65536)
    assert len(parent) == 30, "its code ran"
""")


@pytest.mark.parametrize("base", [9, 10])
def test_shared_references_are_not_written_out_as_a_tree(base: int) -> None:
    attack(
        f"""
from evaltap.recorder.copying import freeze
value = ["text"] * {base}
for _ in range({base}):
    value = [value] * {base}
frozen, was_cut = freeze(value, 65536)
assert was_cut and len(frozen) < 100_000
""",
        seconds=20,
        gigabytes=1,
    )


def test_a_graph_whose_nodes_know_their_neighbours_ends() -> None:
    nodes: list[dict[str, Any]] = [{"name": n} for n in range(30)]
    for node in nodes:
        node["neighbours"] = nodes

    assert seconds_of(lambda: freeze(nodes, LIMIT)) < 0.1


class Sleeping:
    """Sleeps whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        time.sleep(5)
        raise AttributeError(name)

    def model_dump(self, mode: str = "json") -> Any:
        time.sleep(5)

    def __str__(self) -> str:
        time.sleep(5)
        return ""

    __repr__ = __str__

    @property
    def shape(self) -> Any:
        time.sleep(5)

    @property  # type: ignore[misc]  # that is the point
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        time.sleep(5)

    def __hash__(self) -> int:
        time.sleep(5)
        return 1

    def __bool__(self) -> bool:
        time.sleep(5)
        return True


class EndlessMapping(Mapping[str, int]):
    """Has no last key."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "k"

    def __len__(self) -> int:
        return 1


class LazyDict(dict[str, Any]):
    """Sleeps where it is asked by its own methods."""

    def items(self) -> Any:
        time.sleep(5)

    keys = values = __iter__ = __len__ = items


class SleepingMeta(type):
    """A class that sleeps where it is hashed or compared."""

    def __hash__(cls) -> int:
        time.sleep(5)
        return 1

    def __eq__(cls, other: object) -> bool:
        time.sleep(5)
        return False


class WithSleepingClass(metaclass=SleepingMeta):
    """An object of such a class."""


class SleepingError(Exception):
    """Takes its time to say what it is."""

    def __str__(self) -> str:
        time.sleep(5)
        return "late"


LARGE: dict[str, Callable[[], Any]] = {
    "sleeping": Sleeping,
    "sleeping inside": lambda: {"a": [Sleeping()]},
    "sleeping class": WithSleepingClass,
    "endless mapping": EndlessMapping,
    "lazy dict": lambda: LazyDict(a=1),
    "text of 50 MB": lambda: "x" * 50_000_000,
    "text of 50 MB inside": lambda: {"page": "x" * 50_000_000},
    "five million numbers": lambda: [1.5] * 5_000_000,
    "image of 4K": lambda: numpy.zeros((2160, 3840, 3), "uint8"),
    "array of 200 MB": lambda: numpy.zeros(25_000_000),
    "many dicts": lambda: [{"a": n} for n in range(250_000)],
    "bytes": lambda: bytes(100_000_000),
}


Wide: Any = create_model("Wide", **{f"f{n}": (int, n) for n in range(1_000)})  # type: ignore[call-overload]
COSTLY: dict[str, Callable[[], Any]] = {
    "long keys": lambda: {f"{n}" * 1_000: n for n in range(2_000)},
    "models with many fields": lambda: [Wide() for _ in range(50)],
    "wide and deep": lambda: {str(n): [{"a": [n, {"b": n}]}] for n in range(5_000)},
    "pairs": lambda: [(n, n) for n in range(10_000)],
}


@pytest.mark.parametrize("name", COSTLY)
def test_no_shape_of_a_value_costs_much_more_than_a_large_result(name: str) -> None:
    value = COSTLY[name]()
    rows = [{"id": n, "label": "row", "price": n / 4} for n in range(200)]

    assert calls_of(lambda: freeze(value, LIMIT)) < 1.45 * calls_of(lambda: freeze(rows, LIMIT))


def calls_of(call: Callable[[], object]) -> int:
    """Return how many functions are called: what a call costs, whatever else the machine does."""
    call()
    profile = cProfile.Profile()
    profile.runcall(call)
    return sum(entry.callcount for entry in profile.getstats())


def test_no_class_passes_for_another_by_its_name() -> None:
    class DataFrame:
        @property
        def shape(self) -> Any:
            raise AssertionError("its code ran")

    class ValidationError(Exception):
        title = "x"

        def error_count(self) -> int:
            raise AssertionError("its code ran")

    DataFrame.__module__, DataFrame.__qualname__ = "pandas.core.frame", "DataFrame"
    ValidationError.__module__ = "pydantic_core._pydantic_core"
    ValidationError.__qualname__ = "ValidationError"

    assert thaw(freeze(DataFrame(), LIMIT)[0]) == "<DataFrame>"
    assert failure_of(ValidationError("said")).message == "said"


@pytest.mark.parametrize("name", LARGE)
def test_no_value_holds_the_agent_up(name: str) -> None:
    value = LARGE[name]()

    assert len(freeze(value, LIMIT)[0]) < 2 * LIMIT
    assert seconds_of(lambda: freeze(value, LIMIT)) < 0.025


def test_no_argument_of_a_turn_runs_code_of_its_own() -> None:
    recorder = Recorder(sink=MemorySink())
    thing: Any = Sleeping()

    def record() -> None:
        with recorder.turn(session_id=thing, user=thing, user_id=thing, state=thing) as turn:
            call = turn.tool(thing, thing, id=thing, result=thing, agent=thing, duration_ms=thing)
            turn.tool_result(call, thing)
            turn.tool_result(thing, error=SleepingError("said"))
            turn.model(thing, text=thing, input_tokens=thing, cost_usd=thing)
            turn.respond(thing)
            turn.feedback(score=thing, comment=thing, correction=thing, given_by=thing)

    assert seconds_of(record) < 1
    assert recorder.close()
    assert recorder.counters().faults == 0


def test_an_array_is_its_type_and_shape() -> None:
    assert frozen(numpy.zeros((2160, 3840, 3), "uint8")) == "<ndarray (2160, 3840, 3) uint8>"
    assert frozen({"n": numpy.float32(0.5), "m": numpy.int64(7)}) == {"n": 0.5, "m": 7}


class Account(BaseModel, extra="allow"):
    """What tools return."""

    name: str = "A"
    password: SecretStr = SecretStr("hunter2")
    internal: int = Field(1, exclude=True)


def test_a_model_is_its_fields_without_what_it_hides() -> None:
    account = Account.model_validate({"more": [1]})

    assert frozen(account) == {"name": "A", "password": "**********", "more": [1]}


class PanicError(BaseException):
    """What a Rust extension raises."""


@pytest.mark.parametrize("kind", [PanicError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_no_guard_may_catch_is_not_raised_by_the_recorder(kind: type[BaseException]) -> None:
    class Raising(Exception):
        def __str__(self) -> str:
            raise kind

        def model_dump(self, mode: str) -> Any:
            raise kind

    recorder = Recorder(sink=MemorySink())
    with recorder.turn(user="u") as turn:
        turn.tool("t", Raising(), result=Raising())
        turn.tool("t", error=Raising("why"))
    assert recorder.close()
    assert failure_of(Raising("why")).message == "why"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no"), "no"),
        (ValueError("a", 1), "('a', 1)"),
        (KeyError("key"), "'key'"),
        (FileNotFoundError(2, "No such file", "x"), "[Errno 2] No such file: 'x'"),
        (RuntimeError(ValueError("within")), "within"),
        (SleepingError("what was passed"), "what was passed"),
        (ValueError(), None),
    ],
)
def test_an_error_still_says_what_it_is(error: Exception, said: str | None) -> None:
    assert failure_of(error).message == said


def test_a_failed_validation_says_which_field() -> None:
    with pytest.raises(ValueError, match="name") as caught:
        Account.model_validate({"name": 5})

    assert "Input should be a valid string" in str(failure_of(caught.value).message)


@given(st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0x2FF)))
def test_the_room_a_text_takes_is_what_json_writes_for_ascii_and_no_more_than_twice_that(
    text: str,
) -> None:
    written = len(orjson.dumps(text)) - 2

    assert json_size(text) == written if text.isascii() else json_size(text) <= written


@pytest.mark.parametrize("parts", [1, 8, 2_000])
@pytest.mark.parametrize("one", ["\x00", '"', "\\", "\n", "a"])
def test_characters_that_json_escapes_do_not_multiply_what_is_written(one: str, parts: int) -> None:
    texts = [one * (500_000 // parts) for _ in range(parts)]

    for value in (texts, {f"{n}{text}": n for n, text in enumerate(texts)}):
        walk = PlainCopy(LIMIT)
        written = len(orjson.dumps(walk.copied(value)))

        assert written <= 3 * LIMIT


@pytest.mark.parametrize(
    "close", [mmap.mmap.close, memoryview.release], ids=lambda one: one.__name__
)
def test_what_was_closed_is_its_type_and_no_fault(close: Callable[[Any], None]) -> None:
    value = mmap.mmap(-1, 4096) if close is mmap.mmap.close else memoryview(b"abc")
    close(value)

    content, _ = freeze({"before": 1, "closed": value}, LIMIT)

    assert thaw(content) == {"before": 1, "closed": f"<{type(value).__name__}>"}


def test_what_a_model_excludes_stays_out_whatever_kinds_of_fields_it_has() -> None:
    class Account(BaseModel):
        name: str = "n"
        secret: str = Field(default="s", exclude=True)
        other: int = Field(default=2, description="kept")

    content, _ = freeze([Account()] * 3, LIMIT)

    assert thaw(content) == [{"name": "n", "other": 2}] * 3


def test_honest_results_of_some_hundred_rows_are_kept_whole() -> None:
    rows = [{"id": n, "label": f"row {n}", "price": n / 4} for n in range(200)]

    content, was_cut = freeze({"rows": rows}, LIMIT)

    assert not was_cut
    assert thaw(content) == {"rows": rows}


def test_threads_may_record_one_another_s_containers() -> None:
    shared: list[Any] = [{"n": n} for n in range(200)]
    failures: list[BaseException] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def change() -> None:
        for n in range(3000):
            shared[n % 200][str(n)] = n
            shared[n % 200].pop(str(n - 200), None)

    def record() -> None:
        try:
            for _ in range(100):
                freeze(shared, LIMIT)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for work in (change, record, record)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert failures == []


def frozen(value: object) -> Any:
    """Return what is recorded of a value, however busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaltap.recorder.copying._FOREIGN_SECONDS", 60.0)
        return orjson.loads(memoryview(freeze(value, LIMIT)[0]))


def seconds_of(step: Callable[[], object]) -> float:
    began = time.thread_time()
    waited = time.perf_counter()
    step()
    # Sleeping is no work, and a busy machine is no sleep of five seconds.
    return max(time.thread_time() - began, (time.perf_counter() - waited) // 5 * 5)
