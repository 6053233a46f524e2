"""Real database servers in temporary folders, for tests; each URL has a password with special characters."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

PASSWORD = "p@ss/w:rd'1"
_SECONDS = 60.0


@contextmanager
def mariadb() -> Iterator[str]:
    """Run MariaDB while the block lasts; yield the URL of an empty database."""
    server = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    install = shutil.which("mariadb-install-db")
    pymysql: Any = pytest.importorskip("pymysql")
    if not server or not install:
        pytest.skip("MariaDB is not installed")
    user = f"--user={pwd.getpwuid(os.getuid()).pw_name}"
    with _folder() as folder:
        data = folder / "data"
        _run(
            [
                install,
                "--no-defaults",
                user,
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ]
        )
        port = _free_port()
        command = [
            server,
            "--no-defaults",
            user,
            f"--datadir={data}",
            f"--socket={folder / 's'}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            "--innodb-flush-log-at-trx-commit=0",
        ]
        with _running(command, folder):
            connection = _until_it_answers(
                lambda: pymysql.connect(
                    unix_socket=str(folder / "s"), user="root", autocommit=True
                ),
                pymysql.MySQLError,
            )
            with connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE evals")
                cursor.execute("CREATE USER 'ann'@'127.0.0.1' IDENTIFIED BY %s", (PASSWORD,))
                cursor.execute("GRANT ALL ON evals.* TO 'ann'@'127.0.0.1'")
            yield f"mysql://ann:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/evals"


@contextmanager
def postgres() -> Iterator[str]:
    """Run PostgreSQL while the block lasts; yield the URL of an empty database."""
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (str(found[-1]) if found else None)
    if initdb is None:
        pytest.skip("PostgreSQL is not installed")
    with _folder() as folder:
        as_user = _unprivileged(folder)
        (folder / "password").write_text(PASSWORD)
        data = folder / "data"
        _run(
            [
                *as_user,
                initdb,
                f"--pgdata={data}",
                "--username=ann",
                f"--pwfile={folder / 'password'}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-sync",
            ]
        )
        port = _free_port()
        server = Path(initdb).with_name("postgres")
        options = ["-h", "127.0.0.1", "-p", str(port), "-k", str(folder), "-F"]
        with _running([*as_user, str(server), "-D", str(data), *options], folder):
            import psycopg

            url = f"postgresql://ann:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
            _until_it_answers(lambda: psycopg.connect(url), psycopg.Error).close()
            yield url


def _unprivileged(folder: Path) -> list[str]:
    """Return what runs a program as a user that PostgreSQL accepts, and give the folder to that user."""
    if os.getuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("there is no user postgres")
    if setpriv is None:
        pytest.skip("setpriv is not installed")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


@contextmanager
def _folder() -> Iterator[Path]:
    # Not pytest's own: a socket's path must be short, and others must reach the folder.
    folder = Path(tempfile.mkdtemp(prefix="evaltap-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def _running(command: Sequence[str], folder: Path) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd="/", stdout=log, stderr=log)
        try:
            yield
        except ConnectionError as error:
            raise AssertionError((folder / "log").read_text()) from error
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _until_it_answers(connect: Callable[[], Any], failure: type[Exception]) -> Any:
    give_up_at = time.monotonic() + _SECONDS
    while True:
        try:
            return connect()
        except failure as error:
            if time.monotonic() > give_up_at:
                raise ConnectionError(str(error)) from error
            time.sleep(0.05)  # nothing tells when it listens


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
