"""The criterion of similarity by embeddings (evaltap's own part of a metric)."""

from evaltap.schemas.base import WireModel


class EmbeddingModel(WireModel):
    """The model that turns texts into vectors.  A key is never part of it: the environment has it."""

    provider_name: str = ""
    """Empty or `openai` (any OpenAI-compatible endpoint), `wordllama` (weights on this machine)."""
    model_name: str = ""
    base_url: str = ""


class EmbeddingCriterion(WireModel):
    """How near the final response is to the expected one in the space of a model."""

    model: EmbeddingModel | None = None
