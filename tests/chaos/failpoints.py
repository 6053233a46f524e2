"""Failpoints: a consumer that kills itself before its n-th step of writing.

The steps are those of the store (begin, each statement, each append, commit, after the commit), wrapped in
the victim's process; the product has no switch for it.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos import victims


class _Counter:
    def __init__(self, deadly: int, log: Path) -> None:
        self.deadly = deadly
        self.log = log
        self.steps = 0

    def step(self, what: str) -> None:
        self.steps += 1
        if self.steps == self.deadly:
            self.log.write_text(what)
            os.kill(os.getpid(), signal.SIGKILL)


def consume_until(folder: Path, deadly: int, *more: str) -> None:
    """Run `evaltap consume`, and die in front of the n-th step of writing to the store; 0: never."""
    from evaltap.evaluator.store.database import Store

    counter = _Counter(deadly, folder / "died.txt")
    transaction, execute, append = Store.transaction, Store.execute, Store.append

    @contextmanager
    def counted(self: Store) -> Iterator[None]:
        counter.step("begin")
        with transaction(self):
            yield
            counter.step("commit")
        counter.step("after the commit")

    def execute_counted(self: Store, statement: str, parameters: Any = None) -> None:
        counter.step(f"execute {statement[:30]}")
        execute(self, statement, parameters)

    def append_counted(self: Store, table: str, rows: Any) -> None:
        counter.step(f"append {table}")
        append(self, table, rows)

    Store.transaction = counted  # type: ignore[method-assign]  # this process only lives to die
    Store.execute = execute_counted  # type: ignore[method-assign, assignment]  # see above
    Store.append = append_counted  # type: ignore[method-assign, assignment]  # see above
    victims.consume(folder, *more)


def record_until(folder: Path, deadly: int) -> None:
    """Record ten turns to a local log, and die in front of the n-th statement that SQLite gets."""
    from evaltap.recorder.delivery.sinks.local_log import LocalLogSink
    from evaltap.schemas.log import local as local_log
    from evaltap.schemas.log import opening

    victims.quiet(folder / "said.txt")
    counter = _Counter(deadly, folder / "died.txt")
    initialise, connect = opening._initialise, opening.connect_to_append

    def create(path: Path) -> Any:
        counter.step("open")
        connection = connect(path)
        connection.set_trace_callback(counter.step)
        return connection

    def initialise_traced(connection: Any) -> None:
        connection.set_trace_callback(counter.step)
        initialise(connection)

    local_log.connect_to_append = create  # type: ignore[attr-defined]  # as `open_log` finds it
    opening._initialise = initialise_traced
    sink = LocalLogSink(folder / "log.db", min_free_bytes=0)
    from support.builders.cases import make_case, make_records, make_turn

    cases = [make_case(f"s-{n}", [make_turn(f"t-{n}", answer=f"answer {n}")]) for n in range(10)]
    for first in range(0, 10, 2):
        records = make_records(cases[first : first + 2], first_seq=first + 1)
        sink.append(records)
        with (folder / "ledger.txt").open("a") as ledger:
            ledger.write(f"{first} {first + 1}\n")
    sink.close()
