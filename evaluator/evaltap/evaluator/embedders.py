"""The embedders that evaltap ships: an endpoint through the `openai` SDK, and weights of `wordllama`.

Both packages are extras and are loaded when an embedder is made.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaltap.evaluator.embedding import Embedder, EmbeddingSettings, Vector, checked
from evaltap.evaluator.errors import EmbeddingInvalid, EmbeddingsUnavailable
from evaltap.schemas.errors import ConfigurationError

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
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return the vectors, in the order of the texts; one request for all of them."""
        where = f"{self._settings.model} at {self._settings.base_url}"
        try:
            reply = self._client.embeddings.create(
                model=self._settings.model, input=[*texts], encoding_format="float"
            )
        except (self._errors.APIStatusError, self._errors.APIConnectionError) as error:
            raise EmbeddingsUnavailable(f"embeddings {where}: {self._scrub(str(error))}") from None
        except (self._errors.OpenAIError, ValueError, TypeError) as error:
            raise EmbeddingInvalid(f"embeddings {where}: {self._scrub(str(error))}") from None
        rows = getattr(reply, "data", None)
        if not isinstance(rows, list):
            raise EmbeddingInvalid(f"embeddings {where}: the answer has no list `data`")
        places = [getattr(row, "index", None) for row in rows]
        if sorted(place for place in places if isinstance(place, int)) != [*range(len(texts))]:
            raise EmbeddingInvalid(f"embeddings {where}: the rows are not those of the texts")
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
