"""Read a side of a comparison: a file, some of its runs, or traffic."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.cases.turn import Case
from evaltap.evaluator.reports.case_files import cases_of_runs, scored_cases
from evaltap.evaluator.reports.compare.comparison import compare
from evaltap.evaluator.reports.compare.files import (
    read_baseline,
    read_score_lines,
    write_baseline,
    write_score_lines,
)
from evaltap.evaluator.reports.compare.model import Comparison, Rules
from evaltap.evaluator.reports.compare.sides import (
    VERDICTS,
    WITHOUT_VERDICT,
    RecordedTurn,
    Recording,
    ScoreRow,
    Side,
    TrialCases,
    contents_of,
    merged,
    metrics_of,
    recorded_case,
    recorded_turn,
    recording_of,
)
from evaltap.evaluator.reports.compare.traffic import Selection, compare_traffic, selection_of
from evaltap.evaluator.reports.evidence import Comparison as Compared
from evaltap.evaluator.scoring.results.references import attach_kept
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.file_type import is_store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import LINES_ENDINGS, eval_set_name, read_bytes
from evaltap.schemas.files.documents import read_result
from evaltap.schemas.formats.case import Invocation
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.result import EvalMetricResult
from evaltap.schemas.known import check_known
from evaltap.schemas.text import counted

FORMS = (
    "a DuckDB file (all runs, or FILE#RUN,RUN), a baseline.json, an .evalset_result.json or"
    " JSON Lines of scores"
)


def split_runs(text: str) -> tuple[Path, tuple[str, ...]]:
    """Return the file and the runs of `FILE#RUN,RUN`; an existing file of that whole name takes
    precedence."""
    whole = Path(text)
    name, mark, runs = text.rpartition("#")
    if not mark or whole.exists():
        return whole, ()
    return Path(name), tuple(run for run in runs.split(",") if run)


def read_side(text: str) -> Side:
    """Return the scores that an argument names; raise InputError for an invalid argument."""
    path, runs = split_runs(text)
    if is_store(path):
        return read_store_side(path, runs)
    if runs:
        raise FormatError(
            f"#{','.join(runs)} names runs of a DuckDB file, but this is not a DuckDB file",
            path=str(path),
        )
    if path.suffix in LINES_ENDINGS:
        return read_score_lines(path)
    data = canonical.loads(read_bytes(path), path=str(path))
    if isinstance(data, dict) and "format" in data:
        return read_baseline(data, path)
    results = {"evalCaseResults", "eval_case_results"}
    if isinstance(data, str) or (isinstance(data, dict) and not results.isdisjoint(data)):
        return read_result_side(path)
    raise FormatError(f"contains no scores; expected {FORMS}", path=str(path))


def compare_sides(base: str, head: str, rules: Rules) -> Comparison:
    """Compare the sides named by two arguments: runs case by case, slices of traffic as a whole.

    Versions that experiments ran are compared case by case, too.  Raises InputError for an invalid argument,
    and if one side is runs and the other traffic.
    """
    first, second = selection_of(base), selection_of(head)
    if first is not None and second is not None:
        return compare_selections(first, second, rules)
    return compare(read_runs(base), read_runs(head), rules)


def compare_selections(base: Selection, head: Selection, rules: Rules) -> Comparison:
    """Compare slices of traffic: case by case if experiments ran both, on the same cases; else as a whole."""
    if not (_is_experiment(base) and _is_experiment(head)):
        return compare_traffic(base, head, rules)
    return compare(_side_of_version(base), _side_of_version(head), rules)


def read_runs(text: str) -> Side:
    """Return the runs that an argument names; raise InputError if it selects traffic."""
    if (selection := selection_of(text)) is None:
        return read_side(text)
    if not _is_experiment(selection):
        raise InputError(
            f"{text}: no runs of `evaltap run` or `replay` are this version or slice, and traffic can only be"
            " compared with other traffic (FILE@...); expected FILE, FILE#RUN,RUN, or FILE@version=V"
        )
    return _side_of_version(selection)


def _side_of_version(side: Selection) -> Side:
    with side.opened() as store:
        found, units = side_of(store, version=side.version), _units(store, side.version)
    notes = (f"{side.name}: {units}",) if units.invalid else ()
    return replace(found, name=side.name, trials=partial(_again, side), notes=notes)


class _Units(NamedTuple):
    """Runs of experiments."""

    all: int
    invalid: int
    reason: str
    """Why the first one is invalid."""

    def __str__(self) -> str:
        share = f"{self.invalid:,} of {counted(self.all, 'run')}"
        return f"{share} are invalid (no evidence, in no rate), e.g. {one_line(self.reason, 200)}"


def _units(store: StoreReader, version: str) -> _Units:
    return _Units(*store.rows(_UNITS, {"version": version})[0])


_UNITS = """
SELECT count(*), count(*) FILTER (state = 'invalid'),
       coalesce(arg_min(reason, written_at) FILTER (state = 'invalid'), '')
FROM latest_units SEMI JOIN (FROM experiments WHERE $version IN ('', version)) USING (experiment_id)
"""

_ONLY_UNITS = """
SELECT count(*) > 0 AND count(*) = count(u.eval_id)
FROM (SELECT DISTINCT app_name, eval_set_id, eval_id FROM turns WHERE version = $version) t
LEFT JOIN (SELECT DISTINCT app_name, eval_set_id, eval_id FROM units) u
  USING (app_name, eval_set_id, eval_id)
"""


def _is_experiment(side: Selection) -> bool:
    """Return whether a side selects a version, all of which was run by experiments."""
    if not side.version:
        return False
    with side.opened() as store:
        ((only_units,),) = store.rows(_ONLY_UNITS, {"version": side.version})
    return bool(only_units)


def _again(side: Selection, cases: Collection[CaseKey]) -> TrialCases:
    with side.opened() as store:
        return _trials(store, (), cases, side.version)


def export_scores(texts: Sequence[str], out: Path) -> int:
    """Write the scores that arguments name as JSON Lines (`.jsonl`) or as a baseline (`.json`).

    Returns the number of written scores or cases; raises InputError for another extension, and for traffic
    that no experiment ran.
    """
    sides = [*map(read_runs, texts)]
    if out.suffix in LINES_ENDINGS:
        rows = []
        for side in sides:
            if not side.rows:
                raise InputError(
                    f"{side.name}: has only counts, not every score; write a .json baseline instead"
                )
            prefix = f"{side.name} " if len(sides) > 1 else ""
            rows += [row._replace(trial=f"{prefix}{row.trial}") for row in side.rows]
        write_score_lines(out, rows)
        return len(rows)
    if out.suffix != ".json":
        raise InputError(
            f"{out}: expected .json for a baseline of counts, or .jsonl for every score"
        )
    side = merged(sides)
    write_baseline(out, side)
    return len(side.cases)


def read_result_side(path: Path) -> Side:
    """Return the runs of a result file; raise FormatError if it has no cases or unknown statuses."""
    result = read_result(path)
    rows: list[ScoreRow] = []
    recordings: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    made: defaultdict[CaseKey, dict[str, CaseData]] = defaultdict(dict)
    for place, case in enumerate(result.eval_case_results):
        key = ("", case.eval_set_id or result.eval_set_id, case.eval_id)
        trial = str(case.run_id)
        where = f"evalCaseResults[{place}]"
        rows += [
            _row(key, trial, metric, str(path), where)
            for metric in case.overall_eval_metric_results
        ]
        pairs = case.eval_metric_result_per_invocation
        actual = [_data(pair.actual_invocation) or {} for pair in pairs]
        expected = [_data(pair.expected_invocation) for pair in pairs]
        made[key][trial] = _case(case.eval_id, actual, expected)
        if pairs:
            turns = list(map(recorded_turn, actual, expected))
            simulated = True if case.ended_by else None
            recordings[key].append(recording_of(trial, turns, simulated=simulated))
    if not rows:
        raise FormatError("contains no scores; expected metric results of cases", path=str(path))
    runs = len({row.trial for row in rows})
    contents = contents_of(recordings)
    return Side(str(path), runs, metrics_of(rows), recordings, contents, lambda cases: made, rows)


def _row(key: CaseKey, trial: str, metric: EvalMetricResult, path: str, place: str) -> ScoreRow:
    status = metric.eval_status
    if status not in VERDICTS and status not in WITHOUT_VERDICT:
        known = ", ".join((*VERDICTS, *WITHOUT_VERDICT))
        raise FormatError(
            f"`evalStatus` of {metric.metric_name!r} is {status!r}; expected one of {known}",
            path=path,
            place=place,
        )
    # The format omits a score of zero.
    score = None if status in WITHOUT_VERDICT else metric.score or 0.0
    reason = metric.details.reason if metric.details and status != "passed" else ""
    verdict = (status, score, metric.threshold, reason)
    return ScoreRow(key, trial, metric.metric_name, "", *verdict)


def _data(invocation: Invocation | None) -> Case | None:
    return None if invocation is None else invocation.model_dump(by_alias=True)


_SEEN = (
    "user_text, final_text, expected_json, cost_usd, latency_ms,"
    " coalesce(status IN ('error', 'incomplete'), FALSE), simulated"
)
_EVAL_SET = """CASE
  WHEN s.repeat = '' THEN s.eval_set_id
  WHEN s.eval_set_id = s.repeat THEN ''
  ELSE left(s.eval_set_id, len(s.eval_set_id) - len(s.repeat) - 1)
END"""
"""The eval set of a recording (`<set>@<repeat>`, or only the repeat's name), without the repeat."""
_REPEAT: Final = "coalesce(concat_ws('@', if($version = '', NULL, nullif(version, '')), run), '')"
"""What tells recordings of a case apart: the name of the run, and of one version also that version."""
_Row = Sequence[Any]  # of a query


def read_store_side(path: Path, runs: Sequence[str] = ()) -> Side:
    """Return the scores of a file, either of the named runs or of all.

    Raises InputError for a run that does not exist, and if nothing is scored.
    """

    def trials(cases: Collection[CaseKey]) -> TrialCases:
        with open_to_read(path) as again:
            return _trials(again, runs, cases)

    with open_to_read(path) as store:
        return replace(side_of(store, runs), trials=trials)


def side_of(store: StoreReader, runs: Sequence[str] = (), *, version: str = "") -> Side:
    """Return the scores of an open store like `read_store_side`; its cases are read while it is open.

    `version` leaves the recordings of one version of the agent.
    """
    path = store.path
    known = store.column("SELECT run_id FROM runs ORDER BY started_at")
    for run in runs:
        check_known(run, known, f"{path}: no run '{run}'", f"`evaltap runs {path}` lists them")
    query = sql(__name__, "side_scores").format(eval_set=_EVAL_SET, repeat=_REPEAT)
    scored = [
        (ScoreRow((app, eval_set, eval_id), *score), run, stored_set)
        for app, eval_set, eval_id, *score, run, stored_set in store.rows(
            query, {"runs": list(runs), "version": version}
        )
    ]
    if not scored:
        units = _units(store, version)
        if units.invalid and units.invalid == units.all:
            selected = f"{path}@version={version}" if version else path
            raise InputError(f"{selected}: {units}; there is nothing to compare")
        raise InputError(f"{path}: no scores yet; score it with `evaltap score {path}`")
    recordings = _recordings(_turns(store, runs, version, _SEEN))
    name = f"{path}#{','.join(runs)}" if runs else str(path)
    rows = [row for row, *_ in scored]
    count = len({run for _, run, _ in scored})
    stored = {row.case: (row.case[0], name, row.case[2]) for row, _, name in scored}
    return Side(
        name,
        count,
        metrics_of(rows),
        recordings,
        contents_of(recordings),
        lambda cases: _trials(store, runs, cases, version),
        rows,
        stored,
        _compared(store, runs),
    )


def with_case_files(side: Side, run: str, paths: Iterable[Path]) -> Side:
    """Return the scores of a run of case files with what these ask and expect."""
    found: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    for path in paths:
        for case in filter(None, scored_cases(path)):
            key, repeat = _repeat(case_identity(case, eval_set_name(path))[:3])
            found[key].append(recorded_case(f"{run} {repeat}".rstrip(), case))
    return replace(side, recordings=found, contents=contents_of(found))


def _turns(
    store: StoreReader,
    runs: Sequence[str],
    version: str,
    columns: str,
    only: Collection[CaseKey] | None = None,
) -> Sequence[_Row]:
    parameters: dict[str, object] = {"runs": list(runs), "version": version}
    condition = ""
    if only is not None:
        condition = "WHERE [app_name, eval_set_id, eval_id] IN (SELECT unnest($only))"
        parameters["only"] = [list(key) for key in only]
    query = sql(__name__, "side_turns").format(
        columns=columns, only=condition, eval_set=_EVAL_SET, repeat=_REPEAT
    )
    with store.unlimited_memory():
        return store.rows(query, parameters)


def _by_trial(rows: Iterable[_Row]) -> Iterable[tuple[CaseKey, str, list[_Row]]]:
    for (app, eval_set, eval_id, trial), found in groupby(rows, key=lambda row: tuple(row[:4])):
        yield (app, eval_set, eval_id), trial, [row[4:] for row in found]


def _recordings(rows: Iterable[_Row]) -> Mapping[CaseKey, Sequence[Recording]]:
    found: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    for key, trial, turns in _by_trial(rows):
        seen = []
        for user_text, answer, expected, *used, simulated in turns:
            # What a run of an experiment has here is not of its set: another agent gave it in that run.
            given = expected if simulated is None else None
            wanted = None if given is None else orjson.loads(given)
            seen.append(RecordedTurn(user_text, answer, wanted, *used))
        found[key].append(recording_of(trial, seen, simulated=turns[0][-1]))
    return found


def _trials(
    store: StoreReader, runs: Sequence[str], cases: Collection[CaseKey], version: str = ""
) -> TrialCases:
    """Return some cases as landed, as gates judged them, or from the files that were scored."""
    found: defaultdict[CaseKey, dict[str, CaseData]] = defaultdict(dict)
    for key, trial, turns in _by_trial(
        _turns(store, runs, version, "actual_json, expected_json", cases)
    ):
        actual = [orjson.loads(one) for one, _ in turns]
        expected = [None if one is None else orjson.loads(one) for _, one in turns]
        found[key][trial] = _case(key[2], actual, expected)
    for number in range(max(map(len, found.values()), default=0)):
        # A table of references knows a case by its id alone.
        some = {key: list(trials.values())[number:] for key, trials in found.items()}
        attach_kept(store, {key: rest[0] for key, rest in some.items() if rest})
    if version:  # what gates and files were scored with has none
        return found
    judged = store.rows(_JUDGED.format(eval_set=_EVAL_SET), {"runs": list(runs)})
    wanted = set(cases)
    for app, eval_set, eval_id, trial, text in judged:
        if (key := (app, eval_set, eval_id)) in wanted:
            found[key][trial] = orjson.loads(text)
    for run, stored, case in cases_of_runs(store, {eval_id for *_, eval_id in wanted}, runs):
        key, repeat = _repeat(stored)
        if key in wanted:
            found[key][f"{run} {repeat}".rstrip()] = case
    return found


_JUDGED = """
SELECT app_name, {eval_set}, eval_id, concat_ws(' ', run_id, revision, nullif(repeat, '')), case_json
FROM (SELECT *, regexp_extract(eval_set_id, '@([^@]*)$', 1) AS repeat FROM gate_results) s
WHERE len($runs) = 0 OR list_contains($runs, run_id)
"""


def _repeat(stored: CaseKey) -> tuple[CaseKey, str]:
    """Return the key of a case without the repeat, and the name of the repeat."""
    app, name, eval_id = stored
    eval_set, _, repeat = name.rpartition("@") if "@" in name else (name, "", "")
    return (app, eval_set, eval_id), repeat


def _compared(store: StoreReader, runs: Sequence[str]) -> Compared:
    texts = store.column(
        """SELECT metric_json FROM run_metrics
        WHERE len($runs) = 0 OR list_contains($runs, run_id)
        GROUP BY metric_json ORDER BY min(metric_index), metric_json""",
        {"runs": list(runs)},
    )
    return Compared([EvalMetric.model_validate_json(text) for text in texts])


def _case(eval_id: str, actual: Sequence[Case], expected: Sequence[Case | None]) -> CaseData:
    """Return a recording as a case; without expected turns if none is known."""
    return {
        "evalId": eval_id,
        "source": {},  # in a recorded case, null is a turn without a reference
        "evalMode": "trace",
        "sessionInput": {"appName": "compare", "userId": "compare"},
        "actualConversation": list(actual),
        **({"conversation": list(expected)} if any(expected) else {}),
    }
