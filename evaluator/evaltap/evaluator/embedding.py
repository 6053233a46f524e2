"""Embeddings: a model that turns texts into vectors, and how a metric finds it.

`Embedder` is the edge.  `OpenAIEmbedder` speaks to any OpenAI-compatible endpoint, `WordLlamaEmbedder`
has its weights on this machine, and `ScriptedEmbedder` is the twin in memory.  Which one a metric
uses is the metric's `embedding.model`, overridden by the environment.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import isfinite, sqrt
from typing import Any, Final, Protocol, runtime_checkable

from evaltap.evaluator.errors import EmbeddingInvalid, EmbeddingsNotConfigured
from evaltap.schemas.embedding import EmbeddingModel
from evaltap.schemas.errors import ConfigurationError

Vector = Sequence[float]

OPENAI_URL: Final = "https://api.openai.com/v1"
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; `embed` is called from several threads at a time."""

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return a vector for each text, all of one length; raise an EmbeddingError otherwise."""
        ...


class ScriptedEmbedder:
    """An embedder in memory, for tests and dry runs: a function of one text gives its vector."""

    def __init__(self, vector_of: Callable[[str], Vector]) -> None:
        self._vector_of = vector_of
        self.calls: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the vectors that the function gives."""
        self.calls.append([*texts])
        return [self._vector_of(text) for text in texts]


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """Which model, where it is, and how long to wait for it."""

    provider: str
    model: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    timeout: timedelta = DEFAULT_TIMEOUT


def embedding_settings(
    model: EmbeddingModel | None, environ: Mapping[str, str]
) -> EmbeddingSettings:
    """Return the settings of a metric's embeddings; the environment goes before the metric's own.

    EVALTAP_EMBEDDINGS_PROVIDER, _MODEL, _BASE_URL and _TIMEOUT (in seconds) override;
    EVALTAP_EMBEDDINGS_API_KEY is the only place for a key.  Raises EmbeddingsNotConfigured when
    nothing says which model.
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
        raise EmbeddingsNotConfigured(
            "embeddings not configured: set embedding.model.modelName or EVALTAP_EMBEDDINGS_MODEL, and "
            "a base URL or EVALTAP_EMBEDDINGS_API_KEY; or providerName wordllama for weights on this "
            "machine"
        )
    timeout = _timeout(environ.get("EVALTAP_EMBEDDINGS_TIMEOUT", ""))
    return EmbeddingSettings("openai", name, url or OPENAI_URL, key, timeout)


class EnvironmentEmbedders:
    """The provider of production: one embedder for each distinct setting, made when first used."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._embedders: dict[EmbeddingSettings, Embedder] = {}
        self._lock = threading.Lock()

    def __call__(self, model: EmbeddingModel | None) -> Embedder:
        """Return the embedder of a metric; raise EmbeddingsNotConfigured without one."""
        settings = embedding_settings(model, self._environ)
        with self._lock:
            embedder = self._embedders.get(settings)
            if embedder is None:
                from evaltap.evaluator import embedders

                embedder = self._embedders[settings] = embedders.make(settings)
            return embedder


def checked(vectors: Any, count: int) -> list[list[float]]:  # what came from outside
    """Return vectors as lists of numbers; raise EmbeddingInvalid for anything else."""
    if not isinstance(vectors, Sequence) or len(vectors) != count:
        found = len(vectors) if isinstance(vectors, Sequence) else type(vectors).__name__
        raise EmbeddingInvalid(f"found {found} vectors for {count} texts; expected one for each")
    rows = []
    for vector in vectors:
        if not isinstance(vector, Sequence) or isinstance(vector, str) or not vector:
            raise EmbeddingInvalid(
                f"a vector is {type(vector).__name__} or empty; expected numbers"
            )
        if not all(isinstance(one, int | float) and isfinite(one) for one in vector):
            raise EmbeddingInvalid("a vector holds something else than finite numbers")
        rows.append([float(one) for one in vector])
    if len({len(row) for row in rows}) > 1:
        raise EmbeddingInvalid("the vectors have different lengths")
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
