"""What a coding agent can ask a store, each question as a function that returns plain data."""

import difflib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Final

from evaltap.cli.redaction import case_redactor
from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.language import parse_filter
from evaltap.evaluator.analysis.filters.listing import full_name, list_page
from evaltap.evaluator.analysis.summaries.summaries import catch_up
from evaltap.evaluator.cases.evalsets.files import SetFile, read_set, write_set
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import cut
from evaltap.evaluator.curation.drafting import Expectation, draft
from evaltap.evaluator.curation.updating import metrics_path, write_metrics
from evaltap.evaluator.pipeline.maintenance.why import why
from evaltap.evaluator.reports.case import find_case, read_case
from evaltap.evaluator.reports.compare.model import Rules, comparison_data
from evaltap.evaluator.reports.compare.reading import compare_sides
from evaltap.evaluator.reports.findings import findings_of
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.scoring.settings import check_code
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.remote.client import open_to_read, selected
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import eval_set_name
from evaltap.schemas.files.documents import read_metrics
from evaltap.schemas.files.validation import describe
from evaltap.schemas.formats.metric import EvalMetric

Data = dict[str, Any]  # Any: JSON
MOST_CHARACTERS: Final = 40_000
"""Of a reply."""
LONGEST_TEXT: Final = 4_000
"""Characters of one text in a reply, by default."""
MOST_ITEMS: Final = 200
"""Of one list in a reply."""
MOST_CASES: Final = 50
MOST_TURNS: Final = 20
MOST_ROWS: Final = 200
SQL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Questions:
    """The tools of `evaltap mcp`, by the names that they have there.

    Each opens the store for itself, and raises InputError for what a client can mend.
    """

    db: Path
    set: Path
    allow_write: bool = False

    def find_cases(self, filter: str = "", limit: int = 20, after: str = "") -> Data:
        """List the cases that match a filter, e.g. `status:failed tool:refund since:7d sort:worst`.

        An empty filter lists the newest, without runs on cases if there is traffic, too
        (`environment:experiment` lists them). Pass the `next` of a reply as `after` for the next page; long
        cases make pages shorter than `limit`.
        """
        choice = Choice(parse_filter(filter), traffic=True)
        most = _within(limit, MOST_CASES, "limit")
        with open_to_read(self.db) as store:
            catch_up(store)
            while True:
                found = list_page(store, choice, most, after=after, strict=True)
                cases = [one.data() for one in found.cases]
                data = {"matched": found.matched, "cases": cases, "next": found.next}
                size = len(reply_text(data))
                if size <= MOST_CHARACTERS or most == 1:
                    return data
                # `next` goes on after the last case that is shown, so none may be cut off.
                most = max(1, min(most, len(cases)) * MOST_CHARACTERS // (size + size // 10))

    def get_case(self, case: str, first_turn: int = 1, turns: int = 5, app: str = "") -> Data:
        """Return some turns of a case, with tool calls, expected turns, scores and feedback.

        `case` is an eval id, or its beginning. Long texts are cut.
        """
        count = _within(turns, MOST_TURNS, "turns")
        with open_to_read(self.db) as store:
            data = read_case(store, find_case(store, case, app or None))
        every: list[Data] = data["turns"]
        shown = every[max(first_turn, 1) - 1 :][:count]
        ids = {turn["invocation_id"] for turn in shown}
        scores = [one for one in data["turn_scores"] if one["invocation_id"] in ids]
        return {**data, "turns": shown, "turn_scores": scores, "all_turns": len(every)}

    def explain(self, case: str, app: str = "") -> Data:
        """Say what went wrong in a case: failing steps, most telling first, and the verdicts with reasons.

        Each step has a kind (crash, loop, wrong_arguments, missing_call, extra_call, moved_call, failed_call,
        different_answer), a turn and a call.
        """
        with open_to_read(self.db) as store:
            data = read_case(store, find_case(store, case, app or None))
        verdicts = [
            {name: one[name] for name in ("metric_name", "status", "score", "threshold", "reason")}
            for one in data["scores"]
        ]
        steps = [asdict(one) for one in findings_of(data)]
        compared = any(turn["expected"] for turn in data["turns"])
        return {"steps": steps, "verdicts": verdicts, "has_expected_turns": compared}

    def why(self, case: str) -> Data:
        """Say why a case has no score, or none under some metric."""
        with open_to_read(self.db) as store:
            found = why(store, full_name(store, case))
        return {**asdict(found), "complete": found.complete}

    def compare(self, base: str, head: str) -> Data:
        """Compare two runs of this store, or two slices of its traffic, and say whether head is worse.

        A run is an id as in the view `runs` (several with commas); a slice is `@version=1.4` or
        `@2026-11-01/2026-11-08`.
        """
        for name, one in (("base", base), ("head", head)):
            if not one.strip():
                raise InputError(f"{name}: is blank; name a run, or a slice such as `@version=1.4`")
        sides = [f"{self.db}{one if one.startswith('@') else f'#{one}'}" for one in (base, head)]
        return comparison_data(compare_sides(sides[0], sides[1], Rules()))

    def sql(self, statement: str, limit: int = 50) -> Data:
        """Return the rows of one SELECT in DuckDB's dialect, for at most ten seconds.

        Views: curation_turns, latest_turns, latest_scores, v_pass_rate, v_tools, runs.
        """
        most = _within(limit, MOST_ROWS, "limit")
        with selected(self.db, statement, SQL_SECONDS) as found:
            rows = list(islice((row for chunk in found.chunks for row in chunk), most + 1))
        return {"columns": found.names, "rows": rows[:most], "more": len(rows) > most}

    def draft_case(
        self,
        case: str,
        calls: list[Data] | None = None,
        answer: str | None = None,
        turn: int = 0,
        fixed: str = "",
        app: str = "",
        write: bool = False,
    ) -> Data:
        """Draft a regression case of a recorded failure, prove it, and return the diff of the eval set.

        Without `calls` and `answer`, the case keeps the metrics that failed it and what they expected.
        Otherwise they say what should have happened in `turn` (0: the last): the calls as {"name",
        "arguments", "result"}, a text that the answer must contain. Give the `result` of a call that was
        not recorded: a run on the case answers the call with it. `fixed` is a recording without the
        failure, which must pass. Refused if the recording itself would pass. `write` needs --allow-write.
        """
        if write and not self.allow_write:
            raise InputError(
                f"write: not allowed; start the server with --allow-write, or add the diff to {self.set}"
            )
        existing = read_set(self.set) if self.set.exists() else SetFile(eval_set_name(self.set), ())
        file = metrics_path(self.set)
        known = {one.metric_name: one for one in read_metrics(file)} if file.is_file() else {}
        with open_to_read(self.db) as store:
            made = draft(
                store,
                _key(store, case, app),
                _free_scorer,
                case_redactor(),
                expectation=Expectation(turn, _calls(calls), answer),
                fixed=_key(store, fixed, app) if fixed else None,
                metrics=known,
            )
        kept = [one for one in existing.cases if one["evalId"] != made.case["evalId"]]
        cases = sorted([*kept, made.case], key=lambda one: str(one["evalId"]))
        with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
            copy = Path(folder) / self.set.name
            if file.is_file():
                metrics_path(copy).write_bytes(file.read_bytes())
            _write(copy, existing, cases, made.metrics)
            pairs = ((self.set, copy), (file, metrics_path(copy)))
            diff = "".join(line for old, new in pairs for line in _diff(old, new))
        if write:
            _write(self.set, existing, cases, made.metrics)
        return {"set": str(self.set), "written": write, "diff": diff}


QUESTIONS: Final = ("find_cases", "get_case", "explain", "why", "compare", "sql", "draft_case")
"""The methods of `Questions` that are tools."""


def reply_text(data: object, longest: int = LONGEST_TEXT, most: int = MOST_ITEMS) -> str:
    """Return data as JSON; what is longer is cut, and says by how much; hidden characters are shown."""
    plain = _shortened(data, longest, most)
    return visible(json.dumps(plain, ensure_ascii=False, default=str, indent=1))


def _shortened(data: object, characters: int, items: int) -> object:
    if isinstance(data, str):
        return cut(data, characters)
    if isinstance(data, Mapping):
        kept = list(data.items())
        short: dict[str, object] = {
            cut(str(key), characters): _shortened(value, characters, items)
            for key, value in kept[:items]
        }
        return short | ({"…": f"{len(kept) - items:,} more"} if len(kept) > items else {})
    if isinstance(data, list | tuple):
        some: list[object] = [_shortened(one, characters, items) for one in data[:items]]
        return [*some, *([f"… {len(data) - items:,} more"] if len(data) > items else [])]
    return None if isinstance(data, float) and not isfinite(data) else data  # JSON has neither


def _within(number: int, most: int, name: str) -> int:
    if not 1 <= number <= most:
        raise InputError(f"{name} {number}: expected 1 to {most}")
    return number


def _key(store: StoreReader, case: str, app: str) -> CaseKey:
    found = find_case(store, case, app or None)
    return (str(found["app_name"]), str(found["eval_set_id"]), str(found["eval_id"]))


def _calls(given: Sequence[Data] | None) -> list[CaseData] | None:
    for place, one in enumerate(given or ()):
        if not isinstance(one.get("name"), str) or one.keys() - {"name", "arguments", "result"}:
            raise InputError(f"calls[{place}]: expected an object with name, arguments and result")
        if not isinstance(one.get("arguments", {}), dict):
            found = describe(one["arguments"])
            raise InputError(f"calls[{place}].arguments: found {found}; expected an object")
    return None if given is None else [{"arguments": {}, **one} for one in given]


def _free_scorer(metrics: Sequence[EvalMetric]) -> CaseScorer:
    """Return a scorer; raise InputError for metrics that run code or ask a judge, which no tool may start."""
    scorer = CaseScorer(metrics)
    if scorer.waits:
        raise InputError("a judge failed it; draft it with `evaltap curate --as regression`")
    try:
        check_code(metrics, "draft_case", allowed=False)
    except InputError:
        raise InputError(
            "a metric that runs code failed it; draft it with `evaltap curate --as regression`"
        ) from None
    return scorer


def _write(
    path: Path, existing: SetFile, cases: Sequence[CaseData], metrics: Sequence[EvalMetric]
) -> None:
    write_metrics(path, metrics)
    write_set(path, existing, cases)


def _diff(old: Path, new: Path) -> list[str]:
    before = old.read_text("utf-8").splitlines(keepends=True) if old.is_file() else []
    after = new.read_text("utf-8").splitlines(keepends=True)
    return list(difflib.unified_diff(before, after, str(old), str(old)))


Ask = Callable[..., Data]
