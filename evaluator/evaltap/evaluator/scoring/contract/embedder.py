"""Embeddings: a model that turns texts into vectors, and the protocol of its clients.

`Embedder` is the protocol.  `OpenAIEmbedder` uses any OpenAI-compatible endpoint, `WordLlamaEmbedder` runs on
local weights, and `ScriptedEmbedder` is the in-memory twin.  The metric's `embedding.model` chooses one, and
the environment overrides it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from evaltap.schemas.errors import EvaltapError

Vector = Sequence[float]


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors; `embed` is called from several threads concurrently."""

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return a vector for each text, all of the same length; raise an EmbeddingError on failure."""
        ...


class ScriptedEmbedder:
    """An in-memory embedder for tests and dry runs: a function maps a text to its vector.

    >>> embedder = ScriptedEmbedder(lambda text: [len(text), text.count("a")])
    >>> embedder.embed(["a parcel"])
    [[8, 2]]
    """

    def __init__(self, vector_of: Callable[[str], Vector]) -> None:
        self._vector_of = vector_of
        self.calls: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the vectors that the function returns."""
        self.calls.append([*texts])
        return [self._vector_of(text) for text in texts]


class EmbeddingError(EvaltapError):
    """Base of errors that leave texts without vectors; the score is then NULL, never 0."""

    exit_code = 3


class EmbeddingsNotConfiguredError(EmbeddingError):
    """Report that no embedding model is configured, or that its base URL and its key are both missing."""


class EmbeddingsUnavailableError(EmbeddingError):
    """Report an endpoint that could not be reached, was overloaded or rejected the request."""


class EmbeddingInvalidError(EmbeddingError):
    """Report an answer that contains no usable vectors."""
