"""A replay as one HTML file: the forecast, forks, drift, and sessions beside their recording."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from evaltap.evaluator.analysis.forecast.model import Verdict
from evaltap.evaluator.reports.html.beside import sessions_beside
from evaltap.evaluator.reports.html.rendering import templates
from evaltap.evaluator.reports.html.report import plain_page
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.replay import report
from evaltap.experiments.replay.result import ReplayResult

MAX_BYTES: Final = 9_500_000
"""Of the sessions; browsers show a page of this size within a second or two."""
_MOST: Final = {"newly failing": 200, "newly passing": 100, "forked": 50}
_FORKS_OF_A_TOOL: Final = 10
_AT_ONCE: Final = 20
_STATUS: Final[Mapping[Verdict, str]] = {
    "not_worse": "passed",
    "worse": "failed",
    "not_enough": "error",
}
_MARKS: Final[Mapping[Verdict, str]] = {"not_worse": "✓", "worse": "✕", "not_enough": "?"}


@dataclass(frozen=True, slots=True)
class _Group:
    """Sessions of one kind."""

    title: str
    count: int
    sessions: tuple[tuple[str, Markup], ...]
    """Those that are shown: a title, and the columns."""


def replay_html(
    found: ReplayResult, store: StoreReader, experiment_id: str, *, most_bytes: int = MAX_BYTES
) -> str:
    """Return the page; it loads nothing and runs no script.  `store` has the new runs."""
    text = (
        templates("evaltap.experiments.replay")
        .get_template("replay.html.j2")
        .render(
            found=found,
            status=_STATUS[found.verdict],
            headline=report.headline(found),
            basis=list(report.basis(found)),
            remarks=list(report.remarks(found)),
            names=report.FIGURES,
            metrics=[
                (report.figures(name, one), _STATUS[one.verdict], _MARKS[one.verdict])
                for name, one in found.metrics.items()
            ],
            forks=[(one, report.example(one)) for one in found.forks],
            count_titles=[*report.call_counts({})],
            drift=[
                (name, report.call_counts(one), list(report.changed_arguments(one)))
                for name, one in found.drift.items()
            ],
            groups=list(_groups(found, store, experiment_id, most_bytes)),
        )
    )
    return plain_page(report.headline(found), "replay", Markup(text))


def _groups(
    found: ReplayResult, store: StoreReader, experiment_id: str, room: int
) -> Iterator[_Group]:
    """Yield the kinds of sessions, those that fail now first, as far as there is room."""
    for number, (title, count, names) in enumerate(_chosen(found)):
        shown = []
        for session, part in _beside(store, experiment_id, [*names], f"g{number}s"):
            size = len(part.encode())
            if size > room:
                continue
            room -= size
            shown.append((names[session], part))
        yield _Group(title, count, tuple(shown))


def _chosen(found: ReplayResult) -> Iterator[tuple[str, int, Mapping[str, str]]]:
    """Yield the kinds, how many sessions each has, and those to show with their titles."""
    for listed in report.listed_sessions(found):
        shown = [*listed.sessions.items()][: _MOST[listed.title]]
        names = {session: f"{session}: {', '.join(metrics)}" for session, metrics in shown}
        yield listed.title, len(listed.sessions), names
    forked: dict[str, str] = {}
    for one in found.forks:
        for session in one.sessions[:_FORKS_OF_A_TOOL]:
            forked.setdefault(session, f"{session}: {one.tool}")
    if forked:
        count = len({session for one in found.forks for session in one.sessions})
        yield "forked", count, dict([*forked.items()][: _MOST["forked"]])


def _beside(
    store: StoreReader, experiment_id: str, names: Sequence[str], within: str
) -> Iterator[tuple[str, Markup]]:
    """Yield sessions with their columns, read a few at a time."""
    macros = templates().get_template("_beside.html.j2").module
    place = 0
    for start in range(0, len(names), _AT_ONCE):
        for one in sessions_beside(store, experiment_id, names[start : start + _AT_ONCE]):
            place += 1
            yield one.eval_id, macros.session(one, 3, f"{within}{place}")  # type: ignore[attr-defined]  # a macro
