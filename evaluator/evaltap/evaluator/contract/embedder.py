"""Embeddings: a model that turns texts into vectors, and how a metric finds it.

`Embedder` is the protocol.  `OpenAIEmbedder` uses any OpenAI-compatible endpoint, `WordLlamaEmbedder` has
its weights on this machine, and `ScriptedEmbedder` is the in-memory twin.  The metric's `embedding.model`
chooses one, and the environment overrides it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from evaltap.schemas.errors import EvaltapError

Vector = Sequence[float]


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


class EmbeddingError(EvaltapError):
    """Base of errors that leave texts without vectors; the score is then NULL, never 0."""

    exit_code = 3


class EmbeddingsNotConfiguredError(EmbeddingError):
    """Report that no embedding model is named, or neither its base URL nor its key."""


class EmbeddingsUnavailableError(EmbeddingError):
    """Report an endpoint that could not be reached, was overloaded or refused the request."""


class EmbeddingInvalidError(EmbeddingError):
    """Report an answer that holds no usable vectors."""
