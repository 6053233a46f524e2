"""The embedders that evaltap ships: any endpoint that speaks OpenAI's embeddings, and weights of `wordllama`.

The latter is an extra and is loaded when an embedder is made.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import hypot, isfinite
from pathlib import Path
from typing import Any, Final

from evaltap.evaluator.scoring.contract.aggregation import as_written
from evaltap.evaluator.scoring.contract.embedder import (
    Embedder,
    EmbeddingInvalidError,
    EmbeddingsNotConfiguredError,
    EmbeddingsUnavailableError,
    Vector,
)
from evaltap.evaluator.scoring.contract.hosts import OPENAI_URL, among, host_of
from evaltap.evaluator.scoring.contract.judge import UnreachableError
from evaltap.evaluator.scoring.judges.http import HttpError
from evaltap.evaluator.scoring.judges.openai import openai_client
from evaltap.evaluator.scoring.judges.retry_after import retry_after
from evaltap.evaluator.scoring.judges.settings import DEFAULT_TIMEOUT, timeout_of
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.criteria import EmbeddingModel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Which model, where it is, and how long to wait for it."""

    provider: str
    model: str
    base_url: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    timeout: timedelta = DEFAULT_TIMEOUT


def embedding_settings(
    model: EmbeddingModel | None, environ: Mapping[str, str]
) -> EmbeddingSettings:
    """Return the settings of a metric's embeddings; the environment overrides the metric's own.

    EVALTAP_EMBEDDINGS_PROVIDER, _MODEL, _BASE_URL and _TIMEOUT (in seconds) override;
    EVALTAP_EMBEDDINGS_API_KEY is the only place for a key, which goes to EVALTAP_EMBEDDINGS_BASE_URL, or
    to OpenAI without it, never to a server that only the metric names.  Raises
    EmbeddingsNotConfiguredError when nothing says which model.
    """

    def choose(variable: str, own: str) -> str:
        return environ.get(f"EVALTAP_EMBEDDINGS_{variable}", "").strip() or own.strip()

    own = model or EmbeddingModel()
    provider = choose("PROVIDER", own.provider_name).lower()
    name, url = choose("MODEL", own.model_name), choose("BASE_URL", own.base_url)
    if provider == "wordllama":
        return EmbeddingSettings(provider, name)
    if provider not in ("", "openai"):
        raise ConfigurationError(
            f"embeddings provider is '{provider}'; expected openai (any compatible endpoint) or wordllama"
        )
    key = environ.get("EVALTAP_EMBEDDINGS_API_KEY", "").strip()
    if not name or not (url or key):
        raise EmbeddingsNotConfiguredError(
            "embeddings not configured: set embedding.model.modelName or EVALTAP_EMBEDDINGS_MODEL, and "
            "a base URL or EVALTAP_EMBEDDINGS_API_KEY; or providerName wordllama for a local model"
        )
    timeout = timeout_of("EVALTAP_EMBEDDINGS_TIMEOUT", environ)
    url = url or OPENAI_URL
    trusted = environ.get("EVALTAP_EMBEDDINGS_BASE_URL", "").strip() or OPENAI_URL
    return EmbeddingSettings("openai", name, url, key if among(url, [trusted]) else "", timeout)


class EnvironmentEmbedders:
    """The provider of production: one embedder for each distinct setting, made when first used.

    `announce` is called with "asks MODEL at HOST" before an endpoint is first asked; it logs by default.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        announce: Callable[[str], None] = log.info,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._announce = announce
        self._embedders: dict[EmbeddingSettings, Embedder] = {}
        self._lock = threading.Lock()

    def __call__(self, model: EmbeddingModel | None) -> Embedder:
        """Return the embedder of a metric; raise EmbeddingsNotConfiguredError without one."""
        settings = embedding_settings(model, self._environ)
        with self._lock:
            embedder = self._embedders.get(settings)
            if embedder is None:
                local = settings.provider == "wordllama"
                embedder = WordLlamaEmbedder() if local else OpenAIEmbedder(settings)
                self._embedders[settings] = embedder
                if settings.base_url:
                    self._announce(f"asks {settings.model} at {host_of(settings.base_url)}")
            return embedder

    def named(self, model: EmbeddingModel | None) -> str:
        """Return the provider and model that the environment names instead of the metric; empty: none.

        Raises EmbeddingsNotConfiguredError if neither names one.
        """
        own, found = model or EmbeddingModel(), embedding_settings(model, self._environ)
        same = (own.provider_name.lower() or "openai", own.model_name) == (
            found.provider,
            found.model,
        )
        return "" if same else f"{found.provider} {found.model}"

    def reach(self, model: EmbeddingModel | None) -> str:
        """Return what will delay the vectors of a metric's model, empty for nothing.

        Raises UnreachableError when nothing answers at its address.
        """
        try:
            settings = embedding_settings(model, self._environ)
        except EmbeddingsNotConfiguredError:  # the reason of each case
            return ""
        return OpenAIEmbedder(settings).check() if settings.base_url else ""


def checked(vectors: object, count: int) -> list[list[float]]:  # what came from outside
    """Return vectors as lists of numbers; raise EmbeddingInvalidError for anything else."""
    if not isinstance(vectors, Sequence) or len(vectors) != count:
        found = len(vectors) if isinstance(vectors, Sequence) else type(vectors).__name__
        raise EmbeddingInvalidError(
            f"found {found} vectors for {count} texts; expected one for each"
        )
    rows = []
    for vector in vectors:
        if not isinstance(vector, Sequence) or isinstance(vector, str) or not vector:
            raise EmbeddingInvalidError(
                f"a vector is {type(vector).__name__} or empty; expected numbers"
            )
        if not all(isinstance(one, int | float) and isfinite(one) for one in vector):
            raise EmbeddingInvalidError("a vector contains values that are not finite numbers")
        rows.append([float(one) for one in vector])
    if len({len(row) for row in rows}) > 1:
        raise EmbeddingInvalidError("the vectors have different lengths")
    return rows


def cosine(one: Vector, other: Vector) -> float | None:
    """Return the cosine of two vectors, from -1 to 1; None when one of them has no direction."""
    length, width = hypot(*one), hypot(*other)
    if not (length and width):
        return None
    # Divided first, as the products of large numbers are not finite.
    product = sum((x / length) * (y / width) for x, y in zip(one, other, strict=True))
    return max(-1.0, min(1.0, as_written(product)))  # rounding may lead a little beyond


RETRIES: Final = 2
FIRST_WAIT: Final = 0.5
"""Seconds before the first retry; twice as long before the next."""
LONGEST_WAIT: Final = 30.0
_TRY_AGAIN: Final = frozenset({408, 409, 429})


class OpenAIEmbedder:
    """Asks an OpenAI-compatible endpoint; the key appears in no text that this class makes."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        self._settings = settings
        self._where = f"{settings.model} at {host_of(settings.base_url)}"
        try:
            self._client = openai_client(settings.base_url, "/embeddings", settings.api_key)
        except ConfigurationError as error:
            raise ConfigurationError(self._scrub(str(error))) from None

    def close(self) -> None:
        self._client.close()

    def check(self) -> str:
        """Return why connecting is slow, or an empty text; raise UnreachableError if nothing answers."""
        try:
            slow = self._client.check()
        except UnreachableError as error:
            where = f"embeddings {self._where}"
            raise UnreachableError(
                f"{where} cannot be reached: {self._scrub(str(error))}"
            ) from None
        return f"embeddings {self._where}: {slow}" if slow else ""

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the vectors, in the order of the texts; one request for all of them."""
        body = {"model": self._settings.model, "input": [*texts], "encoding_format": "float"}
        try:
            reply = json.loads(self._asked(json.dumps(body).encode()))
        except (ValueError, RecursionError) as error:
            raise EmbeddingInvalidError(f"embeddings {self._where}: no JSON: {error}") from None
        rows = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise EmbeddingInvalidError(
                f"embeddings {self._where}: the answer has no list `data` of objects"
            )
        places = [row.get("index") for row in rows]
        if sorted(place for place in places if isinstance(place, int)) != [*range(len(texts))]:
            raise EmbeddingInvalidError(
                f"embeddings {self._where}: the rows are not those of the texts"
            )
        ordered = sorted(rows, key=lambda row: int(row["index"]))
        return checked([row.get("embedding") for row in ordered], len(texts))

    def _asked(self, body: bytes) -> bytes:
        """Return the body of a good answer, after a few tries; raise EmbeddingsUnavailableError."""
        said = ""
        for tries_left in reversed(range(RETRIES + 1)):
            wait = FIRST_WAIT * 2 ** (RETRIES - tries_left)
            try:
                response = self._client.post(body, self._settings.timeout.total_seconds())
            except HttpError as error:
                said = str(error) or f"no answer within {self._settings.timeout}"
            else:
                if 200 <= response.status < 300:
                    return response.body
                said = f"answered {response.status}: {response.body.decode(errors='replace')}"
                if response.status not in _TRY_AGAIN and response.status < 500:
                    break
                asked = retry_after(response.headers)
                wait = min(asked.total_seconds(), LONGEST_WAIT) if asked is not None else wait
            if tries_left:
                time.sleep(wait)
        raise EmbeddingsUnavailableError(f"embeddings {self._where}: {self._scrub(said)}")

    def _scrub(self, text: str) -> str:
        key = self._settings.api_key
        return (text.replace(key, "***") if key else text)[:500]


class WordLlamaEmbedder:
    """Static word vectors that come with the package: nothing leaves this machine."""

    def __init__(self) -> None:
        # The package configures the root logger when it is imported; that is the program's business.
        handlers, level = logging.root.handlers[:], logging.root.level
        try:
            import wordllama
        except ImportError as error:
            raise ConfigurationError(
                "local embeddings need the package wordllama; install evaltap[embeddings]"
            ) from error
        finally:
            logging.root.handlers[:] = handlers
            logging.root.setLevel(level)
        # Its default looks for the tokenizer in a folder that the release does not have (0.4.0.post1)
        # and then asks the network; with its own folder as the cache it finds everything.
        folder = Path(wordllama.__file__).parent
        self._model: Any = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the vectors; a text without known words has no direction."""
        return checked(self._model.embed([*texts]).tolist(), len(texts))
