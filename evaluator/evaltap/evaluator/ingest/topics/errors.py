"""Why a write did not happen; imported without the Kafka client, which is an optional package."""

from evaltap.schemas.errors import EvaltapError


class TopicsUnavailableError(EvaltapError):
    """Raised when a broker does not answer, or answers with an error that a retry may solve."""
