"""Store paid answers in a SQLite file, so that no question is paid for twice.

The key is a hash of everything that could change the answer: model, address, parameters, the question with
its version, the form of the answer, and the number of the sample, so that N samples remain N votes.  It
excludes the random word of the fences.  Only usable answers are stored.
"""

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import orjson

from evaltap.evaluator.scoring.contract.judge import Judge, JudgeInvalid, JudgeReply, JudgeRequest
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.evaluator.scoring.waiting import Condition, in_thread
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.metric import GenerationConfig

LAYOUT: Final = 1
"""Version of the file and of the keys; files with another layout are not used."""
BUSY_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 1.0
"""Answers of this many seconds are written together: a transaction for each would take half a core at 2,000
answers a second.  After a crash, at most this many seconds of answers are requested again."""

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS replies (
  key           BLOB PRIMARY KEY,
  text          TEXT NOT NULL,
  model         TEXT NOT NULL,
  input_tokens  INTEGER,
  output_tokens INTEGER,
  cost_usd      REAL,
  created_at    TEXT NOT NULL
) WITHOUT ROWID
"""
_JUDGES: Final = "CREATE TABLE IF NOT EXISTS judges (identity BLOB PRIMARY KEY) WITHOUT ROWID"
"""The judges whose answers are stored.  Files older than this table have answers but no judges."""
_HAS_ANSWERS: Final = """
SELECT EXISTS (SELECT 1 FROM judges WHERE identity = ?)
    OR (NOT EXISTS (SELECT 1 FROM judges) AND EXISTS (SELECT 1 FROM replies))
"""
_SELECT: Final = """
SELECT key, text, model, input_tokens, output_tokens, cost_usd, created_at FROM replies WHERE key = ?
"""
_INSERT: Final = "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?)"
_Row: TypeAlias = tuple[bytes, str, str, int | None, int | None, float | None, str]
_NOTHING: Final = timedelta(0)


class JudgeCache:
    """The file of answers; several threads and processes may use it concurrently.

    The constructor raises ConfigurationError if the file is unusable.  A later fault (such as a full disk) is
    stored in `problem`, and disables the cache; scoring continues.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._unwritten: dict[bytes, _Row] = {}
        self._judges: set[bytes] = set()
        self._written_at = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Answers quote the judged text, so only the owner may read them.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._connection = self._open()
            # A separate connection, so that readers do not wait while answers are written.
            self._writer = self._open()
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"judge cache {path} cannot be opened: {error}; name another file, or 'off'"
            ) from None

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            layout = connection.execute("PRAGMA user_version").fetchone()[0]
            if layout not in (0, LAYOUT) or (layout == 0 and _has_tables(connection)):
                raise sqlite3.DatabaseError("it is another program's, or of another version")
            connection.execute("PRAGMA journal_mode = WAL")
            # Answers lost in a power failure are requested again; the file is not damaged.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
            connection.execute(_JUDGES)
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
        except BaseException:
            connection.close()
            raise
        return connection

    def get(self, key: bytes) -> JudgeReply | None:
        """Return the answer stored under a key, as a reply that costs nothing now."""
        with self._lock:
            row = self._unwritten.get(key) or self._read(key)
        if row is None:
            return None
        _, text, model, _, _, cost, _ = row
        return JudgeReply(text, model, 0, 0, _NOTHING, 0.0, cached=True, saved_usd=cost)

    def has_answers_of(self, judge: bytes) -> bool:
        """Return whether answers of the judge with this identity are stored."""
        if self.problem:
            return False
        try:
            with self._lock:
                return bool(self._connection.execute(_HAS_ANSWERS, (judge,)).fetchone()[0])
        except sqlite3.Error as error:
            self._record_problem(error)
            return False

    def put(self, key: bytes, reply: JudgeReply, judge: bytes = b"") -> None:
        """Store or replace an answer of a judge; it is written to the file shortly afterwards."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        row = (
            key,
            reply.text,
            reply.model,
            reply.input_tokens,
            reply.output_tokens,
            reply.cost_usd,
            now,
        )
        if self.problem:
            return
        with self._lock:
            self._unwritten[key] = row
            self._judges.add(judge)
            due = time.monotonic() - self._written_at >= WRITE_SECONDS
            if due:
                self._written_at = time.monotonic()
        if due:
            in_thread(self._write)

    def close(self) -> None:
        """Write the remaining answers, and close the file."""
        self._write()
        with self._writing, self._lock:
            self.problem = self.problem or "closed"
            self._connection.close()
            self._writer.close()

    def _read(self, key: bytes) -> _Row | None:
        if self.problem:
            return None
        try:
            found: _Row | None = self._connection.execute(_SELECT, (key,)).fetchone()
        except sqlite3.Error as error:
            self._record_problem(error)
            return None
        return found

    def _write(self) -> None:
        """Write waiting answers in one transaction; while another process holds the lock, they wait."""
        with self._writing:
            with self._lock:
                rows, judges = dict(self._unwritten), list(self._judges)
            if not rows or self.problem:
                return
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                for row in rows.values():
                    # SQLite cannot store some texts and numbers.
                    with suppress(UnicodeError, OverflowError):
                        self._writer.execute(_INSERT, row)
                for judge in judges:
                    self._writer.execute("INSERT OR IGNORE INTO judges VALUES (?)", (judge,))
                self._writer.execute("COMMIT")
            except sqlite3.Error as error:
                self._record_problem(error)
                if self._writer.in_transaction:
                    self._writer.rollback()
                return
            with self._lock:
                for key, row in rows.items():
                    if self._unwritten.get(key) is row:
                        del self._unwritten[key]

    def _record_problem(self, error: sqlite3.Error) -> None:
        if "locked" not in str(error):  # another process is writing: skip this time
            self.problem = str(error)


class CachedJudge:
    """Answers from the cache; otherwise calls the judge and stores the answer if it is usable.

    An answer that repeats the random word of its fences depends on it, and is not stored.
    """

    def __init__(self, judge: Judge, cache: JudgeCache, settings: JudgeSettings) -> None:
        self._judge = judge
        self._cache = cache
        self._start = hashlib.sha256()
        where = (settings.provider, settings.base_url.rstrip("/"), settings.model)
        for part in (str(LAYOUT), *where):
            _add(self._start, part.encode())
        _add(self._start, orjson.dumps(settings.extra_body, option=orjson.OPT_SORT_KEYS))
        self._identity = self._start.digest()
        self._generation: tuple[GenerationConfig, bytes] | None = None
        self._answered = Condition()
        self._asked: dict[bytes, object] = {}
        """A token for the request in progress, by key."""

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the stored answer to this request, or the judge's.

        If another thread is requesting the same answer, wait for it.  If that answer cannot be stored, other
        threads send their own requests.
        """
        key = self.key(request)
        mine = object()
        with self._answered:
            asked = self._asked.setdefault(key, mine)
            while asked is not mine and self._asked.get(key) is asked:
                self._answered.wait()
        try:
            return self._stored(key, request) or self._ask(key, request)
        finally:
            if asked is mine:
                with self._answered:
                    del self._asked[key]
                    self._answered.notify_all()

    def has_answers(self) -> bool:
        return self._cache.has_answers_of(self._identity)

    def _stored(self, key: bytes, request: JudgeRequest) -> JudgeReply | None:
        stored = self._cache.get(key)
        return stored if stored is not None and _usable(request, stored.text) else None

    def _ask(self, key: bytes, request: JudgeRequest) -> JudgeReply:
        reply = self._judge.answer(request)
        depends = bool(request.nonce) and request.nonce in reply.text
        if not depends and _usable(request, reply.text):
            self._cache.put(key, reply, self._identity)
        return reply

    def key(self, request: JudgeRequest) -> bytes:
        """Return the hash under which the answer to a request is stored."""
        digest = self._start.copy()
        _add(digest, self._parameters(request.generation))
        schema = request.answer_schema
        _add(digest, b"" if schema is None else orjson.dumps(schema))
        for text in (request.answer_name, request.version, str(request.sample)):
            _add(digest, text.encode())
        if request.tokens:
            _add(digest, b"tokens")
        # The fences' word occurs in none of the texts between them, so the pieces of two prompts
        # differ exactly if the prompts differ in anything else than the word.
        pieces = request.prompt.split(request.nonce) if request.nonce else [request.prompt]
        for piece in pieces:
            _add(digest, piece.encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _parameters(self, generation: GenerationConfig) -> bytes:
        known = self._generation
        if known is None or known[0] is not generation:
            known = self._generation = (generation, generation.model_dump_json().encode())
        return known[1]


def _add(digest: "hashlib._Hash", part: bytes) -> None:
    """Add a part preceded by its length, so that different lists of parts never hash the same bytes."""
    digest.update(len(part).to_bytes(8, "big"))
    digest.update(part)


def _usable(request: JudgeRequest, text: str) -> bool:
    if request.check is None:
        return bool(text.strip())
    try:
        request.check(text)
    except JudgeInvalid:
        return False
    return True


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def cache_from(given: str, environ: Mapping[str, str]) -> JudgeCache | None:
    """Return the cache given by the argument, otherwise by EVALTAP_JUDGE_CACHE, otherwise the default one.

    `off` means no cache.  Raises ConfigurationError if a named file is unusable; if the default file is
    unusable, continues without a cache.
    """
    place = given or environ.get("EVALTAP_JUDGE_CACHE", "").strip()
    if place == "off":
        return None
    if place:
        return JudgeCache(Path(place).expanduser())
    try:
        return JudgeCache(default_path(environ))
    except ConfigurationError:
        return None


def default_path(environ: Mapping[str, str]) -> Path:
    """Return the default file of answers, in the user's cache folder."""
    folder = environ.get("XDG_CACHE_HOME", "").strip()
    root = Path(folder) if folder else Path(environ.get("HOME") or "~").expanduser() / ".cache"
    return root / "evaltap" / "judge-cache.db"
