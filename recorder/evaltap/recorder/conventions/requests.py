"""An application's own spans around its agent, which may say whose session it is."""

from collections.abc import Sequence

from evaltap.recorder.conventions.reading import Reading, first_text
from evaltap.recorder.telemetry.spans import LogRecord, Span

SESSION = "session.id"
USER = "user.id"


class Requests:
    """Reads the session and the user of any span; they are those of the runs below it."""

    name = ""
    marks = (SESSION,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return session and user of a span with a session id, else None."""
        session = first_text(span.attributes, SESSION)
        if session is None:
            return None
        return Reading(self.name, session_id=session, user_id=first_text(span.attributes, USER))
