"""The alerts of a file of rules: to whom they go, what they say, and which of them are silenced."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.monitoring.alerting.notice import Notice, evidence_page
from evaltap.evaluator.monitoring.alerting.outbox import AlertOutbox
from evaltap.evaluator.monitoring.alerting.receivers import Receiver, make_receiver
from evaltap.evaluator.monitoring.history import Alert, as_stored
from evaltap.evaluator.monitoring.rules import name_of
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.monitor import MonitorFile, Watch

_CASES_QUOTED: Final = 3
_LONGEST_QUOTE: Final = 200
_WORDS: Final = """
SELECT eval_id, user_text, final_text FROM latest_turns WHERE eval_id IN $ids::VARCHAR[]
QUALIFY row_number() OVER (PARTITION BY eval_id ORDER BY started_at DESC, landed_seq DESC) = 1
ORDER BY eval_id
"""


def receivers_of(
    rules: MonitorFile, path: Path | None, environ: Mapping[str, str], *, allow_code: bool
) -> list[Receiver]:
    """Return the receivers of alerts; raise InputError for a receiver that cannot be used."""
    found = []
    for number, settings in enumerate(rules.alerts):
        place = f"{path}: alerts[{number}] ({settings.type})"
        if settings.type == "command" and not allow_code:
            raise InputError(
                f"{place}: runs a program; check what it names, then allow it with --allow-code"
                " (EVALTAP_ALLOW_CODE=1)"
            )
        found.append(make_receiver(settings, place, environ, name=name_of(settings, number)))
    return found


def is_silenced(rules: MonitorFile, watch: str) -> bool:
    ends = next((one.silence_ends for one in rules.watch if one.name == watch), None)
    return ends is not None and datetime.now(UTC) < ends


def alert_outbox(
    store: Store,
    rules: MonitorFile,
    receivers: Sequence[Receiver],
    redactor: Callable[[], Callable[[str], str]],
) -> AlertOutbox:
    """Return the outbox of the alerts; excerpts of cases are redacted."""

    def excerpts(cases: Sequence[str]) -> list[str]:
        redacted = redactor()

        def short(text: str | None) -> str:
            return one_line(redacted(text or ""), _LONGEST_QUOTE)

        rows = store.rows(_WORDS, {"ids": list(cases)[:_CASES_QUOTED]})
        return [f"{case}: {short(asked)} -> {short(answer)}" for case, asked, answer in rows]

    watches = {watch.name: watch for watch in rules.watch}

    def notice_of(alert: Alert, began_at: datetime, repeated: bool) -> Notice:
        alert = as_stored(store, alert)
        name = alert.event.watch
        watch = watches.get(name) or Watch(name=name)  # removed from the rules: its alarm has ended
        page = evidence_page(rules, watch, alert, store)
        return Notice(alert, began_at, watch, page, store.path.name, repeated)

    def silenced(watch: str) -> bool:
        return is_silenced(rules, watch)

    return AlertOutbox(store, receivers, notice_of, excerpts_of=excerpts, silenced=silenced)
