"""Ten thousand planted secrets in sixty formats: none appears anywhere behind the recorder."""

from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from evaltap.cli.main import main
from evaltap.recorder import Recorder
from evaltap.schemas.log.local import open_log
from support.corpora.leak_corpus import FORMATS, KEY_NAMES, Maker, encoded, hidden, traces_of

NUMBER = 10_000
PER_TURN = 20


class Planting:
    """Plants secrets into turns; `secrets` maps each to its format and place."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self._maker = Maker(20_261_121)
        self._planted = self._maker.planted(NUMBER)
        self._count = 0

    def value(self) -> Any:
        """Return a JSON value with the next secret, hidden in the next way."""
        planted = next(self._planted)
        self._count += 1
        ways = list(hidden(planted))
        way = self._count // len(FORMATS) % (len(ways) + 2)
        if way == len(ways):
            text, secret = encoded(planted)
            self.secrets[secret] = f"{planted.format}, in base64"
            return {"blob": text}
        if way == len(ways) + 1:
            word = self._maker.any(10)
            name = KEY_NAMES[self._count % len(KEY_NAMES)]
            self.secrets[word] = f"key {name}"
            return {"config": {name: word}}
        self.secrets[planted.secret] = f"{planted.format}, way {way}"
        return ways[way]

    def text(self) -> str:
        """Return a text with the next secret."""
        value = self.value()
        return value if isinstance(value, str) else orjson.dumps(value).decode()


def record(recorder: Recorder, planting: Planting, number: int) -> None:
    """Record one turn with a secret in every place that a turn has."""
    failing = number % 3 == 0
    try:
        with recorder.turn(
            session_id=f"s-{number}",
            user=planting.text(),
            user_id=f"user-{number}",
            state={"deep": planting.value()},
        ) as turn:
            for call in range(5):
                turn.tool("lookup", {"q": planting.value()}, id=str(call), result=planting.value())
            turn.tool("broken", planting.value(), id="x", error=ValueError(planting.text()))
            turn.model("m", text=planting.text())
            turn.model("m", text=planting.text())
            if failing:
                raise RuntimeError(planting.text())
            turn.respond(planting.text())
    except RuntimeError:
        assert failing


@pytest.mark.slow
def test_none_of_ten_thousand_secrets_is_in_log_store_dead_letters_or_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    planting = Planting()
    recorder = Recorder("log.db")
    turns = 0
    while planting._count < NUMBER - PER_TURN:
        record(recorder, planting, turns)
        turns += 1
    assert recorder.close(60)
    spoil_every_tenth_record(Path("log.db"))
    consumed = main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"])

    said = capfd.readouterr()
    artefacts = {
        "stdout and stderr": (said.out + said.err).encode(),
        "log": contents_of_log(Path("log.db")),
        "store": contents_of_store(Path("x.duckdb")),
        **{path.name: path.read_bytes() for path in Path().iterdir()},
    }
    leaks = {name: traces_of(planting.secrets, content) for name, content in artefacts.items()}

    assert consumed == 2  # there are bad records
    assert recorder.counters().delivered == turns
    assert len(planting.secrets) > NUMBER - 2 * PER_TURN
    assert b"lookup" in artefacts["store"]
    assert (
        sorted({f"{name}: {leak}" for name, found in leaks.items() for leak in found.values()})
        == []
    )


def test_the_search_finds_what_is_planted() -> None:
    planting = Planting()
    content = b"".join(orjson.dumps(planting.value()) for _ in range(2_000))

    found = traces_of(planting.secrets, content.replace(b'\\\\\\"', b'"').replace(b'\\"', b'"'))

    assert len(found) > len(planting.secrets) * 0.95


def spoil_every_tenth_record(path: Path) -> None:
    log = open_log(path, mode="append")
    log.connection.execute(
        'UPDATE records SET value = substr(value, 1, length(value) - 5) WHERE "offset" % 10 = 0'
    )
    log.close()


def contents_of_log(path: Path) -> bytes:
    log = open_log(path, mode="read")
    rows = log.connection.execute("SELECT key, headers, value FROM records").fetchall()
    log.close()
    return b"\n".join(bytes(key) + headers.encode() + bytes(value) for key, headers, value in rows)


def contents_of_store(path: Path) -> bytes:
    """Return every value of every table: the file itself is compressed."""
    parts: list[str] = []
    with duckdb.connect(str(path), read_only=True) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        for (table,) in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"').fetchall():
                parts += [
                    one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one)
                    for one in row
                ]
        letters = connection.execute("SELECT count(*) FROM dead_letters").fetchone()
    assert letters is not None
    assert letters[0] > 10
    return "\n".join(parts).encode()
