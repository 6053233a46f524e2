"""A full disk, an unwritable file, a lock: reported clearly, nothing lost, and resumed later."""

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import victims
from chaos.consumption import look, write_input
from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from support.builders.cases import make_case, make_records, make_turn, write_log

ON_A_SMALL_DISK = """
set -e
mount -t tmpfs -o size=3m none {disk}
cd {disk}
cp {folder}/log.db {folder}/metrics.json .
set +e
{python} -c 'import sys; from evaltap.cli.main import main; sys.exit(main())' \\
  consume --log log.db --db x.duckdb --metrics metrics.json --until-idle > {folder}/full.txt 2>&1
echo $? > {folder}/full.code
mount -o remount,size=60m {disk}
{python} -c 'import sys; from evaltap.cli.main import main; sys.exit(main())' \\
  consume --log log.db --db x.duckdb --metrics metrics.json --until-idle > {folder}/later.txt 2>&1
echo $? > {folder}/later.code
cp x.duckdb {folder}
"""


def may_mount() -> bool:
    """Tell whether this machine lets us have a file system of our own."""
    tried = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return tried.returncode == 0


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_consumer_on_a_full_disk_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or not may_mount():
        pytest.skip("needs unshare and a mount of one's own")
    ledger = write_input(tmp_path, 400)
    (tmp_path / "disk").mkdir()
    script = ON_A_SMALL_DISK.format(disk=tmp_path / "disk", folder=tmp_path, python=sys.executable)

    subprocess.run(["unshare", "-rm", "sh", "-c", script], check=True, env=os.environ)

    said = (tmp_path / "full.txt").read_text()
    assert (tmp_path / "full.code").read_text().strip() == "2", said
    assert "make room and start again" in said
    assert "Traceback" not in said
    assert (tmp_path / "later.code").read_text().strip() == "1", (
        tmp_path / "later.txt"
    ).read_text()
    assert look(tmp_path, ledger) == []


ON_A_READ_ONLY_DISK = """
mount -t tmpfs none {disk}
cp {folder}/x.duckdb {folder}/metrics.json {disk}
mount -o remount,ro {disk}
cd {folder}
for command in \
  "cases {disk}/x.duckdb" "report {disk}/x.duckdb" "estimate {disk}/x.duckdb" "doctor --db {disk}/x.duckdb" \
  "set export {disk}/x.duckdb --out e.json" "store archive {disk}/x.duckdb --to archive" \
  "store prune {disk}/x.duckdb --older-than 90d" "consume --log log.db --db {disk}/new.duckdb --until-idle"
do
  {python} -c 'import sys; from evaltap.cli.main import main; sys.exit(main())' $command > out 2>&1
  echo "$? $(grep read-only out)" >> codes
done
"""


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_a_store_on_a_read_only_disk_is_read_and_who_must_write_is_told_why(
    tmp_path: Path,
) -> None:
    if shutil.which("unshare") is None or not may_mount():
        pytest.skip("needs unshare and a mount of one's own")
    write_input(tmp_path, 4)
    victims.start(victims.consume, tmp_path).join()
    (tmp_path / "disk").mkdir()
    script = ON_A_READ_ONLY_DISK.format(
        disk=tmp_path / "disk", folder=tmp_path, python=sys.executable
    )

    subprocess.run(["unshare", "-rm", "sh", "-c", script], check=True, env=os.environ)

    codes = (tmp_path / "codes").read_text().splitlines()
    assert {*codes[:6]} == {"0 ", "1 "}, codes  # 1: cases that failed
    assert all(line.startswith("2 ") and "cannot be written" in line for line in codes[6:]), codes


def consume_with_little_room(folder: Path, size: int) -> None:
    """Consume where no file may grow beyond a size; the signal for it is ignored, as Python does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    victims.consume(folder)


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [100_000, 400_000, 700_000])
def test_a_file_that_may_not_grow_stops_the_consumer_with_a_message(
    tmp_path: Path, size: int
) -> None:
    ledger = write_input(tmp_path, 200)

    stopped = victims.start(consume_with_little_room, tmp_path, size)
    stopped.join()
    said = (tmp_path / "said.txt").read_text()
    later = victims.start(victims.consume, tmp_path)
    later.join()

    assert stopped.exitcode == 2, said
    assert "make room" in said
    assert "Traceback" not in said
    assert later.exitcode == 1
    assert look(tmp_path, ledger) == []


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_a_second_consumer_is_told_who_holds_the_file(tmp_path: Path) -> None:
    write_input(tmp_path, 2)
    holder = subprocess.Popen(
        [sys.executable, "-c",
         "import sys; from evaltap.evaluator.store.database import Store\n"
         "store = Store(sys.argv[1]); print(flush=True); sys.stdin.read()",
         str(tmp_path / "x.duckdb")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdin is not None
    holder.stdout.readline()

    second = victims.start(victims.consume, tmp_path)
    second.join()

    said = (tmp_path / "said.txt").read_text()
    assert second.exitcode == 2
    assert f"open in another process (process {holder.pid})" in said
    holder.stdin.close()
    holder.wait()
    holder.stdout.close()


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_a_log_that_is_read_ten_times_leaves_the_rows_of_one_reading(tmp_path: Path) -> None:
    ledger = write_input(tmp_path, 20)

    for _ in range(10):
        process = victims.start(victims.consume, tmp_path)
        process.join()
        assert process.exitcode == 1
        assert look(tmp_path, ledger) == []
        with Store(tmp_path / "x.duckdb") as store:
            # As after a loss of offsets: everything is delivered again.
            store.execute("DELETE FROM offsets")


@pytest.mark.chaos
@pytest.mark.timeout(120)
def test_a_major_version_to_come_is_parked_and_lands_after_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [make_case(f"s-{n}", [make_turn("t")]) for n in range(20)]
    monkeypatch.setattr("evaltap.schemas.wire.envelope.MAJOR", 2)
    write_log(tmp_path / "log.db", make_records(cases))
    monkeypatch.undo()
    path = str(tmp_path / "x.duckdb")
    assert main(["consume", "--log", str(tmp_path / "log.db"), "--db", path, "--until-idle"]) == 2
    with Store(path) as store:
        assert store.rows(
            "SELECT count(*), bool_and(parked), any_value(reason) FROM dead_letters"
        ) == [(20, True, "schema_unknown")]
        assert store.rows("SELECT count(*) FROM turns") == [(0,)]

    monkeypatch.setattr("evaltap.schemas.wire.envelope.MAJOR", 2)
    monkeypatch.setattr("evaltap.schemas.wire.envelope.OLDEST_MAJOR", 1)
    assert main(["store", "dlq", "replay", path]) == 0

    with Store(path) as store:
        assert store.rows("SELECT count(*) FROM dead_letters") == [(0,)]
        assert store.rows("SELECT count(*) FROM turns") == [(20,)]
