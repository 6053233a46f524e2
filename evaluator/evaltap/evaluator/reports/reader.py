"""Read a report from the store: scores in bulk, evidence only for the cases shown in full."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import orjson

from evaltap.evaluator.cases.identity import THIS_CASE, CaseKey
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.cases.text import cut
from evaltap.evaluator.ingest.landing.cases import DocumentReader, assembled
from evaltap.evaluator.reports.case_files import CaseWords, FileCases, landed_words, words_of
from evaltap.evaluator.reports.evidence import Comparison, evidence_of
from evaltap.evaluator.reports.model import (
    SEVERITY,
    CaseReport,
    Cell,
    GateVerdict,
    JudgeCall,
    Limits,
    MetricReport,
    Report,
    Source,
    TurnCell,
    Usage,
    VoteCell,
    case_status,
    reason_groups,
)
from evaltap.evaluator.reports.scope import ReportedScores, check_run, score_scope, these_cases
from evaltap.evaluator.reports.summary import Difference, Summary, metric_places, summarise
from evaltap.evaluator.reports.summary_notes import sampled_line, summary_notes
from evaltap.evaluator.reports.text import difference_lines
from evaltap.evaluator.reports.usage import (
    TurnUse,
    landed_usage,
    landed_uses,
    total,
    traffic_usage,
    usage_in,
    usage_of,
)
from evaltap.evaluator.reports.wording import RubricReason, readable, with_rubrics
from evaltap.evaluator.scoring.results.references import attach_kept
from evaltap.evaluator.store.database import STORE, sql
from evaltap.evaluator.store.queries import Scratch, StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted

CASES_AT_ONCE: Final = 50
"""Cases in memory while their references are looked up."""


def read_report(
    store: StoreReader,
    *,
    run_id: str | None = None,
    digests: Sequence[str] = (),
    case_files: Sequence[Path] = (),
    references: References | None = None,
    limits: Limits | None = None,
) -> Report:
    """Read the report of a run, or of the latest scores if `run_id` is None.

    `digests` restricts it to metric versions.  The evidence of a case is read from its landed turns, or for
    cases that were scored from files, from `case_files`.  `references` are expected turns for landed cases,
    as given for scoring.  Raises InputError for an unknown run.
    """
    limits = limits or Limits()
    with (
        _scores(store, run_id, digests) as scores,
        store.scratch(_BY_SEVERITY.format(scores=scores)) as every,
        store.scratch(f"FROM {every} ORDER BY ALL LIMIT {limits.listed}") as worst,
        store.scratch(f"FROM {every} ORDER BY ALL LIMIT {limits.cases}") as first,
    ):
        by_severity: dict[int, int] = dict(
            store.rows(f"SELECT severity, count(*) FROM {every} GROUP BY ALL")
        )
        report = Report(
            _source(store, run_id),
            datetime.now(UTC).isoformat(timespec="seconds"),
            summarise(store, run_id=run_id, metrics=digests, scores=scores),
            case_counts={name: by_severity.get(place, 0) for place, name in enumerate(SEVERITY)},
        )
        listed, shown = (ReportedScores(store, scores, cases) for cases in (worst, first))
        cases = with_verdicts(listed, scored_cases(listed, limits))
        judged = dict(judged_cases(listed))
        files = FileCases(
            case_files,
            wanted={case.key for case in cases[: limits.cases]},
            scored=_keys(listed) if case_files or judged else (),
            judged=judged.items(),
        )
        calls = JudgeCalls(shown, limits)
        detailed = with_details(shown, cases[: limits.cases], calls, limits)
        landed = expected_data(shown, references)
        detailed = _with_evidence(detailed, landed, files, _comparison(listed), limits)
        words = {**files.words, **landed_words(listed)}
        uses = [*landed_uses(listed), *files.uses]
        cases = list(_with_usage([*detailed, *cases[limits.cases :]], uses, words))
        used = _usage(listed, files)
        return replace(
            report,
            metrics=_metric_reports(listed),
            cases=tuple(cases),
            reasons=reason_groups(cases),
            agent=traffic_usage(listed, used) if report.summary.weighted else used,
            judge=calls.usage(),
            notes=(*_notes(report, cases, limits, files), *summary_notes(report.summary)),
        )


def read_uses(
    store: StoreReader,
    *,
    run_id: str | None = None,
    digests: Sequence[str] = (),
    case_files: Sequence[Path] = (),
) -> list[TurnUse]:
    """Return the usage of each turn of the scored cases: landed ones, and those of the given files."""
    with _scores(store, run_id, digests) as scores:
        scored = ReportedScores(store, scores, scores)
        judged = judged_cases(scored)
        return _uses(scored, FileCases(case_files, wanted=(), scored=_keys(scored), judged=judged))


def read_differences(
    store: StoreReader,
    summary: Summary,
    *,
    digests: Sequence[str] = (),
    case_files: Sequence[Path] = (),
    references: References | None = None,
) -> list[Difference]:
    """Return the openings of the worst cases of a summary, and the calls that differ."""
    keys = {row.key: row.name for row in summary.worst}
    with (
        these_cases(store, keys) as cases,
        _scores(store, summary.run_id, digests, within=cases) as scores,
    ):
        scored = ReportedScores(store, scores, cases)
        landed = dict(expected_data(scored, references))
        lacking = keys.keys() - landed.keys()
        files = FileCases(
            case_files if lacking else (), wanted=lacking, scored=(), judged=judged_cases(scored)
        )
        comparison, limits = _comparison(scored), Limits()
    found = []
    for key, name in keys.items():
        case = landed.get(key) or files.cases.get(key)
        if case is not None:
            evidence, _ = evidence_of(case, comparison, limits)
            found.append(Difference(name, difference_lines(evidence), words_of(case).opening))
    return found


def _source(store: StoreReader, run_id: str | None) -> Source:
    name = "" if str(store.path) == ":memory:" else str(store.path)
    if run_id is None:
        return Source(name, None)
    check_run(store, run_id)
    (row,) = store.rows(
        """SELECT kind, source, evaltap_version, started_at::VARCHAR,
                  (SELECT max(ended_at) FROM run_ends e WHERE e.run_id = r.run_id)::VARCHAR
           FROM runs r WHERE run_id = $run_id LIMIT 1""",
        {"run_id": run_id},
    )
    kind, cases_from, version, started, ended = row
    return Source(name, run_id, kind, cases_from, version, started[:19], (ended or "")[:19])


def _scores(
    store: StoreReader, run_id: str | None, digests: Sequence[str], *, within: Scratch | None = None
) -> AbstractContextManager[Scratch]:
    """Return a table with the scores of all cases, or of some."""
    scope, parameters = score_scope(store, run_id, digests)
    some = f"SEMI JOIN {within} USING (app_name, eval_set_id, eval_id)" if within else ""
    # Nobody reads the ids of scores here; being hashes, they would take much of the table.
    return store.scratch(f"FROM (SELECT * EXCLUDE (score_id) {scope}) {some}", parameters)


def scored_cases(scored: ReportedScores, limits: Limits) -> list[CaseReport]:
    """Return the chosen cases of some scores, worst first, then sorted by name."""
    found: dict[CaseKey, tuple[int, list[Cell]]] = {}
    query = """
        SELECT app_name, eval_set_id, eval_id, revision, metric_name, status, score, threshold,
               coalesce(reason, '')
        FROM {scores} SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)
        ORDER BY app_name, eval_set_id, eval_id, metric_name"""
    for row in scored.rows(query):
        app, eval_set, eval_id, revision, name, status, score, threshold, reason = row
        if status not in SEVERITY:
            raise InputError(
                f"evaltap did not write this DuckDB file (a score has the status {status!r:.40});"
                " name another file, or consume the log into a new one"
            )
        cell = Cell(name, status, score, threshold, cut(readable(reason), limits.text))
        found.setdefault((app, eval_set, eval_id), (revision, []))[1].append(cell)
    cases = [
        CaseReport(*key, revision, case_status(cells), tuple(cells))
        for key, (revision, cells) in found.items()
    ]
    return sorted(cases, key=lambda case: SEVERITY.index(case.status))


def _comparison(scored: ReportedScores, first: str = "") -> Comparison:
    """Return how the metrics of some scores compare calls; the one named `first` precedes."""
    rows = sorted(scored.rows(_METRICS), key=lambda row: row[0] != first)
    return Comparison([EvalMetric.model_validate_json(text) for _, text in rows])


def landed_data(store: StoreReader, cases: Scratch) -> Iterator[tuple[CaseKey, CaseData]]:
    """Yield some landed cases with their latest turns."""
    # The views compute the latest rows of all cases; here only these cases are read.
    these = ", ".join(
        f"these_{table} AS (FROM {table} SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id))"
        for table in ("cases", "turns")
    )
    rows = store.rows(f"WITH {these}, {sql(STORE, 'newest')} {sql(__name__, 'report_turns')}")
    yield from assembled(DocumentReader(store), rows)


def expected_data(
    scored: ReportedScores, references: References | None = None
) -> Iterator[tuple[CaseKey, CaseData]]:
    """Yield the shown cases with expected turns from `references`, or else those of their scores."""
    cases = landed_data(scored.store, scored.cases)
    while some := dict(islice(cases, CASES_AT_ONCE)):
        if references is None:
            attach_kept(scored.store, some, scores=str(scored.scores))
        else:
            for case in some.values():
                references.attach(case)
        yield from some.items()


def _with_evidence(
    cases: Iterable[CaseReport],
    landed: Iterable[tuple[CaseKey, CaseData]],
    files: FileCases,
    comparison: Comparison,
    limits: Limits,
) -> Iterator[CaseReport]:
    # The evidence is short, as long texts are cut; the cases may be large, so they are not kept.
    found = {key: evidence_of(data, comparison, limits) for key, data in landed}
    for case in cases:
        if case.key not in found and case.key in files.cases:
            found[case.key] = evidence_of(files.cases[case.key], comparison, limits)
        evidence, note = found.get(case.key, ((), _NO_FILE))
        yield replace(case, evidence=evidence, evidence_note=note)


_NO_FILE: Final = "scored from a file that was not given to this report (`--cases FILE`)"


def _uses(scored: ReportedScores, files: FileCases) -> list[TurnUse]:
    landed = landed_uses(scored)
    here = {use.key for use in landed}
    return [*landed, *(use for use in files.uses if use.key not in here)]


def _usage(scored: ReportedScores, files: FileCases) -> Usage:
    """Return what the turns of the scored cases used; that of landed ones is added up in the store."""
    if not files.uses:
        return landed_usage(scored)
    return usage_of(_uses(replace(scored, cases=scored.scores), files))


def _keys(scored: ReportedScores) -> set[CaseKey]:
    keys = scored.rows("SELECT DISTINCT app_name, eval_set_id, eval_id FROM {scores}")
    return {(app, eval_set, eval_id) for app, eval_set, eval_id in keys}


def _with_usage(
    cases: Iterable[CaseReport], uses: Sequence[TurnUse], words: Mapping[CaseKey, CaseWords]
) -> Iterable[CaseReport]:
    by_case: dict[CaseKey, list[TurnUse]] = {}
    for use in uses:
        by_case.setdefault(use.key, []).append(use)
    for case in cases:
        turns = by_case.get(case.key, [])
        costs = [use.cost_usd for use in turns if use.cost_usd is not None]
        latencies = [use.latency_ms for use in turns if use.latency_ms is not None]
        opening, tools = words.get(case.key, CaseWords())
        yield replace(
            case,
            cost_usd=total(costs),
            unpriced=len(turns) - len(costs),
            latency_ms=total(latencies),
            opening=opening,
            tools=tools,
        )


def _metric_reports(scored: ReportedScores) -> tuple[MetricReport, ...]:
    bins: dict[str, list[int]] = {}
    for name, place, count in scored.rows(
        "SELECT metric_name, least(floor(score * 10), 9)::INTEGER, count(*) FROM {scores}"
        " WHERE score BETWEEN 0 AND 1 GROUP BY ALL"
    ):
        bins.setdefault(name, [0] * 10)[place] = count
    rows = scored.rows(
        "SELECT metric_name, any_value(evaluator_name), max(evaluator_version),"
        " list_sort(list(DISTINCT threshold)), count(*) FILTER (score < 0 OR score > 1)"
        " FROM {scores} GROUP BY metric_name ORDER BY metric_name"
    )
    places = metric_places(scored.store)
    rows.sort(key=lambda row: places.get(row[0], len(places)))
    return tuple(
        MetricReport(
            name, evaluator, version, tuple(thresholds), tuple(bins.get(name, [0] * 10)), outside
        )
        for name, evaluator, version, thresholds, outside in rows
    )


def _notes(
    report: Report, cases: Sequence[CaseReport], limits: Limits, files: FileCases
) -> list[str]:
    notes = []
    if report.total > len(cases):
        notes.append(
            f"{len(cases):,} of {report.total:,} cases are listed, beginning with those that did not pass;"
            " all are counted. See `evaltap cases` for the others."
        )
    if len(cases) > limits.cases:
        notes.append(
            f"Turns, differences and votes are shown for {limits.cases:,} of {report.total:,} cases,"
            " beginning with those that did not pass; see `evaltap show` for the others."
        )
    if bare := sum(case.detailed and not case.evidence for case in cases):
        notes.append(
            f"The turns of {counted(bare, 'case')} are not shown: they were scored from files that were not"
            " given to this report (`--cases FILE`)."
        )
    if files.bad_lines:
        notes.append(
            f"{counted(files.bad_lines, 'line')} of the case files skipped, because they are not"
            " eval cases."
        )
    if files.sampled:
        notes.append(sampled_line(files.sampled))
    return notes


def with_verdicts(scored: ReportedScores, cases: Iterable[CaseReport]) -> list[CaseReport]:
    """Return the cases of some scores with the verdicts of gates, worst first.

    A case that a gate could not check has not passed, regardless of other scores.
    """
    verdicts = {
        (app, eval_set, eval_id): GateVerdict(*verdict)
        for app, eval_set, eval_id, *verdict in scored.rows(_VERDICTS)
    }
    found = [_judged(case, verdicts) for case in cases]
    return sorted(found, key=lambda case: SEVERITY.index(case.status))


def judged_cases(scored: ReportedScores) -> Iterator[tuple[CaseKey, CaseData]]:
    """Yield the cases of some scores as gates judged them."""
    for app, eval_set, eval_id, text in scored.rows(_CASES):
        yield (app, eval_set, eval_id), orjson.loads(text)


def _judged(case: CaseReport, verdicts: Mapping[CaseKey, GateVerdict]) -> CaseReport:
    if (verdict := verdicts.get(case.key)) is None:
        return case
    status = case.status
    if verdict.status == _INCOMPLETE and status == "passed":
        status = "not_evaluated"
    return replace(case, status=status, gate=verdict)


_INCOMPLETE: Final = "incomplete"
_BEHIND: Final = """
FROM gate_results
SEMI JOIN {scores} USING (run_id, app_name, eval_set_id, eval_id, revision)
QUALIFY row_number() OVER (PARTITION BY app_name, eval_set_id, eval_id ORDER BY revision DESC) = 1
"""
_VERDICTS: Final = f"SELECT app_name, eval_set_id, eval_id, status, attempt, feedback {_BEHIND}"
_CASES: Final = f"SELECT app_name, eval_set_id, eval_id, case_json {_BEHIND}"
_BY_SEVERITY: Final = f"""
SELECT list_position({[*SEVERITY]}, CASE
         WHEN bool_or(status = 'crashed') THEN 'crashed'
         WHEN bool_or(status = 'failed') THEN 'failed'
         WHEN bool_or(status = 'error') THEN 'error'
         WHEN bool_or(status = 'passed') AND any_value(gate) IS DISTINCT FROM '{_INCOMPLETE}' THEN 'passed'
         ELSE 'not_evaluated' END) - 1 AS severity,
       app_name, eval_set_id, eval_id
FROM {{scores}}
LEFT JOIN (SELECT app_name, eval_set_id, eval_id, status AS gate {_BEHIND})
  USING (app_name, eval_set_id, eval_id)
GROUP BY ALL
"""
"""The status of each case, as `case_status` and `_judged` find it; the first column sorts."""

CellKey: TypeAlias = tuple[str, str, str, str]
"""The key of a case, and the name of a metric."""
Explained = TypeVar("Explained", Cell, TurnCell)


class JudgeCalls:
    """The judges' answers for the scores of a report: in full for the chosen cases, totals for all."""

    def __init__(self, scored: ReportedScores, limits: Limits) -> None:
        self._scored = scored
        self._any = bool(scored.rows("SELECT 1 FROM judge_calls LIMIT 1"))
        self.by_cell: defaultdict[CellKey, list[JudgeCall]] = defaultdict(list)
        if not self._any:
            return
        chosen = f"FROM ({_CALLS}) SEMI JOIN {{cases}} USING (app_name, eval_set_id, eval_id)"
        for row in scored.rows(f"{chosen} ORDER BY ALL"):
            app, eval_set, eval_id, metric_name, invocation, sample, *about, reason = row[:10]
            judge, model, status = about
            reason = cut(reason, limits.text)
            call = JudgeCall(invocation, sample + 1, judge, model, status, reason, *row[10:])
            self.by_cell[app, eval_set, eval_id, metric_name].append(call)

    def usage(self) -> Usage | None:
        """Return what all answers used; None without answers."""
        if not self._any:
            return None
        # Otherwise, the judge was not called.
        asked = (
            f"FROM ({_CALLS}) WHERE (status <> 'not_evaluated' OR sample_index < 0)"
            " AND reason NOT LIKE 'judge not called: %'"
        )
        used = usage_in(self._scored, asked)
        ((cached,),) = self._scored.rows(f"SELECT count(*) FILTER (cached) {asked}")
        return replace(used, cached=cached) if used.count else None


_CALLS: Final = sql(__name__, "report_judge_calls")


def with_details(
    scored: ReportedScores, cases: Iterable[CaseReport], calls: JudgeCalls, limits: Limits
) -> Iterable[CaseReport]:
    """Yield the cases with the details of their cells."""
    turns: defaultdict[CellKey, list[TurnCell]] = defaultdict(list)
    votes: defaultdict[CellKey, list[VoteCell]] = defaultdict(list)
    verdicts: defaultdict[CellKey, list[RubricReason]] = defaultdict(list)
    for row in scored.rows(sql(__name__, "report_turn_scores")):
        app, eval_set, eval_id, metric_name, index, invocation, status, score, reason = row
        turn = TurnCell(index + 1, invocation, status, score, readable(reason))
        turns[app, eval_set, eval_id, metric_name].append(turn)
    judged = scored.rows("SELECT 1 FROM rubric_votes LIMIT 1")
    for row in scored.rows(sql(__name__, "report_votes")) if judged else ():
        app, eval_set, eval_id, metric_name, invocation, sample, rubric, score, *texts = row[:10]
        at = app, eval_set, eval_id, metric_name
        reason, evidence = (cut(text, limits.text) for text in texts)
        vote = VoteCell(invocation, sample + 1, rubric, score, reason, evidence, *row[10:])
        votes[at].append(vote)
        verdicts[at].append(RubricReason((invocation, sample), rubric, score, texts[0]))

    def explained(one: Explained, at: CellKey) -> Explained:
        return replace(one, reason=cut(with_rubrics(one.reason, verdicts[at]), limits.text))

    for case in cases:
        cells = []
        for cell in case.cells:
            at = (*case.key, cell.metric_name)
            found = replace(
                explained(cell, at),
                turns=tuple(explained(one, at) for one in turns[at][: limits.turn_scores]),
                votes=tuple(votes[at]),
                calls=tuple(calls.by_cell[at]),
            )
            cells.append(found)
        yield replace(case, cells=tuple(cells), detailed=True)


_LATEST: Final = f"""
SELECT * FROM scores
WHERE {THIS_CASE}
  AND ($run::VARCHAR = '' OR run_id = $run)
QUALIFY row_number() OVER (PARTITION BY metric_name ORDER BY revision DESC, scored_at DESC) = 1
"""

_METRICS: Final = """
SELECT metric_name, metric_json FROM run_metrics
WHERE metric_digest IN (SELECT metric_digest FROM {scores})
GROUP BY ALL ORDER BY min(metric_index), metric_json
"""


def read_case(
    store: StoreReader,
    key: CaseKey,
    *,
    run_id: str = "",
    metric: str = "",
    references: References | None = None,
    limits: Limits,
) -> CaseReport:
    """Read a case with its latest scores, or those of one run; without cells if it has none.

    Tool calls are compared as in `metric`, or in the first trajectory metric.  A case that was scored from a
    file has no evidence, which its note explains.  `references` are expected turns for landed cases, as given
    for scoring.
    """
    app, eval_set, eval_id = key
    asked = {"app": app, "eval_set": eval_set, "eval_id": eval_id, "run": run_id}
    with store.scratch(_LATEST, asked) as scores, these_cases(store, [key]) as cases:
        found = ReportedScores(store, scores, cases)
        scored = scored_cases(found, limits)
        one = scored[0] if scored else CaseReport(*key, 0, "not_evaluated", ())
        (one,) = with_details(found, [one], JudgeCalls(found, limits), limits)
        data = dict(expected_data(found, references)).get(key)
        comparison = _comparison(found, metric)
    if data is None:
        note = "its turns are not in this file, because it was scored from a case file"
        return replace(one, evidence_note=note)
    evidence, note = evidence_of(data, comparison, limits)
    return replace(one, evidence=evidence, evidence_note=note)
