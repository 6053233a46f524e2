"""The embedders that evaltap ships: an endpoint through the `openai` SDK, and weights of `wordllama`.

Both packages are extras and are loaded when an embedder is made.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, Final

from evaltap.evaluator.contract.embedder import (
    Embedder,
    EmbeddingInvalidError,
    EmbeddingsNotConfiguredError,
    EmbeddingsUnavailableError,
    Vector,
)
from evaltap.evaluator.contract.hosts import OPENAI_URL, among, host_of
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.criteria import EmbeddingModel

DEFAULT_TIMEOUT: Final = timedelta(seconds=60)

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
            "a base URL or EVALTAP_EMBEDDINGS_API_KEY; or providerName wordllama for weights on this "
            "machine"
        )
    timeout = _timeout(environ.get("EVALTAP_EMBEDDINGS_TIMEOUT", ""))
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
                embedder = self._embedders[settings] = make(settings)
                if settings.base_url:
                    self._announce(f"asks {settings.model} at {host_of(settings.base_url)}")
            return embedder


def checked(vectors: Any, count: int) -> list[list[float]]:  # what came from outside
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
            raise EmbeddingInvalidError("a vector holds something else than finite numbers")
        rows.append([float(one) for one in vector])
    if len({len(row) for row in rows}) > 1:
        raise EmbeddingInvalidError("the vectors have different lengths")
    return rows


def cosine(one: Vector, other: Vector) -> float | None:
    """Return the cosine of two vectors, from -1 to 1; None when one of them has no direction."""
    lengths = sqrt(sum(x * x for x in one)) * sqrt(sum(x * x for x in other))
    if not lengths:
        return None
    product = sum(x * y for x, y in zip(one, other, strict=True)) / lengths
    return max(-1.0, min(1.0, product))  # rounding may lead a little beyond


def _timeout(text: str) -> timedelta:
    if not text.strip():
        return DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise ConfigurationError(
            f"EVALTAP_EMBEDDINGS_TIMEOUT is '{text}'; expected seconds above 0 and below a day"
        )
    return timedelta(seconds=seconds)


RETRIES = 2


def make(settings: EmbeddingSettings) -> Embedder:
    """Return the embedder for the settings; raise ConfigurationError when its package is missing."""
    return WordLlamaEmbedder() if settings.provider == "wordllama" else OpenAIEmbedder(settings)


class OpenAIEmbedder:
    """Asks an OpenAI-compatible endpoint; the key appears in no text that this class makes."""

    def __init__(self, settings: EmbeddingSettings) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigurationError(
                "embeddings of an endpoint need the openai package; install evaltap[judge]"
            ) from error
        self._errors = openai
        self._settings = settings
        # An explicit key, so that the SDK does not send OPENAI_API_KEY to whatever server is named.
        self._client = openai.OpenAI(
            api_key=settings.api_key or "none",
            base_url=settings.base_url,
            timeout=settings.timeout.total_seconds(),
            max_retries=RETRIES,
            # The texts must not follow a redirect to another server.
            http_client=openai.DefaultHttpxClient(follow_redirects=False),
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the vectors, in the order of the texts; one request for all of them."""
        where = f"{self._settings.model} at {host_of(self._settings.base_url)}"
        try:
            reply = self._client.embeddings.create(
                model=self._settings.model, input=[*texts], encoding_format="float"
            )
        except (self._errors.APIStatusError, self._errors.APIConnectionError) as error:
            raise EmbeddingsUnavailableError(
                f"embeddings {where}: {self._scrub(str(error))}"
            ) from None
        except (self._errors.OpenAIError, ValueError, TypeError) as error:
            raise EmbeddingInvalidError(f"embeddings {where}: {self._scrub(str(error))}") from None
        rows = getattr(reply, "data", None)
        if not isinstance(rows, list):
            raise EmbeddingInvalidError(f"embeddings {where}: the answer has no list `data`")
        places = [getattr(row, "index", None) for row in rows]
        if sorted(place for place in places if isinstance(place, int)) != [*range(len(texts))]:
            raise EmbeddingInvalidError(f"embeddings {where}: the rows are not those of the texts")
        ordered = sorted(rows, key=lambda row: row.index)
        return checked([getattr(row, "embedding", None) for row in ordered], len(texts))

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
                "embeddings of this machine need the package wordllama; install evaltap[embeddings]"
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
