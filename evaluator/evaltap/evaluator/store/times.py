"""Times as the tables hold them: in UTC, without a zone."""

from datetime import UTC, datetime


def stored_time(moment: datetime) -> datetime:
    """Return an aware time as the tables hold it."""
    return moment.astimezone(UTC).replace(tzinfo=None)
