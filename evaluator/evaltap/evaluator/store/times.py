"""Times as the tables hold them: in UTC, without a zone."""

from datetime import UTC, datetime, timedelta


def stored_time(moment: datetime) -> datetime:
    """Return an aware time as the tables hold it."""
    return moment.astimezone(UTC).replace(tzinfo=None)


def shifted(moment: datetime, by: timedelta) -> datetime:
    """Return a time plus a duration, at most the end of the calendar on that side.

    Stores hold turns dated year 1 or 9999, which earlier versions landed.
    """
    try:
        return moment + by
    except OverflowError:
        end = datetime.max if by > timedelta(0) else datetime.min
        return end.replace(tzinfo=moment.tzinfo)
