"""An archive in an S3 bucket is written, read, verified and trusted like one in a folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import obstore
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from evaltap.cli.main import main
from support.builders.cases import TRAJECTORY, make_case, make_records, make_turn, write_log

ARCHIVE = "s3://archives/team/agent"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    monkeypatch.chdir(tmp_path)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    urlopen(Request(f"http://{host}:{port}/archives", method="PUT")).close()
    yield S3Store("archives", prefix="team/agent")
    server.stop()


def fill(*sessions: str, first_seq: int = 1) -> None:
    turns = [make_turn(creationTimestamp=1_700_000_000 + 86_400 * n) for n in range(len(sessions))]
    cases = [make_case(name, [turn]) for name, turn in zip(sessions, turns, strict=True)]
    write_log(Path("log.db"), make_records(cases, first_seq=first_seq))
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle"])


def out(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    code = main([*command])
    found = capsys.readouterr()
    return found.err if code == 2 else found.out


@pytest.mark.slow
def test_a_bucket_holds_an_archive_as_a_folder_does(
    bucket: S3Store, capsys: pytest.CaptureFixture[str]
) -> None:
    fill("a", "b")
    report = ("--json",)
    assert main(["store", "archive", "x.duckdb", "--to", ARCHIVE]) == 0
    fill("c", first_seq=3)
    more = json.loads(out(capsys, "store", "archive", "x.duckdb", "--to", ARCHIVE, "--json"))

    assert more["rows"]["turns"] == 1
    names = [one["path"] for some in obstore.list(bucket) for one in some]
    assert "evaltap-archive.json" in names
    assert len([name for name in names if name.startswith("turns/day=2023-11-")]) == 3
    assert out(capsys, "runs", ARCHIVE, *report) == out(capsys, "runs", "x.duckdb", *report)
    assert '"n": 3' in out(capsys, "sql", ARCHIVE, "SELECT count(*) AS n FROM turns", "--json")
    assert "all as written" in out(capsys, "store", "archive", "--verify", ARCHIVE)

    prune = ("store", "prune", "x.duckdb", "--older-than", "9d", "--archived", ARCHIVE)
    assert "deleted: cases 3" in out(capsys, *prune)
    first = next(name for name in names if name.startswith("turns/"))
    obstore.delete(bucket, first)
    assert f"{ARCHIVE}: {first} is missing" in out(capsys, "runs", ARCHIVE)


@pytest.mark.slow
@pytest.mark.usefixtures("bucket")
def test_what_a_bucket_lacks_is_one_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    fill("a")

    empty = "s3://archives/empty"
    assert f"{empty}: no archive of evaltap" in out(capsys, "runs", empty)
    said = out(capsys, "store", "archive", "x.duckdb", "--to", "s3://no-such-bucket/x")
    assert said.startswith("evaltap store archive: s3://no-such-bucket/x: cannot be reached (")
    assert len(said.splitlines()) == 1
    said = out(capsys, "store", "dlq", "replay", ARCHIVE)
    assert f"{ARCHIVE}: is an archive, which is only read" in said
