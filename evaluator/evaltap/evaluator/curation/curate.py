"""Create or update an eval set from a store by a recipe: the same store and recipe produce the same bytes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from evaltap.evaluator.cases.evalsets.content import content_hash
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.curation.choosing import Choices, Chosen, Progress, choose
from evaltap.evaluator.curation.expectations import (
    ExcludedTurnError,
    Good,
    RegressionCheck,
    ScorerOf,
    as_expected,
    as_inputs,
    as_scenario,
    failed_metrics,
)
from evaltap.evaluator.curation.grouping import health
from evaltap.evaluator.curation.recipe import Recipe
from evaltap.evaluator.curation.review.queue import NOTHING_DECIDED, Decisions
from evaltap.evaluator.curation.sessions import (
    Session,
    provenance,
    read_sessions,
    recorded_case,
    with_kept_references,
)
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import metrics_of
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.metric import EvalMetric

Redact = Callable[[CaseData], CaseData]


@dataclass(frozen=True, slots=True)
class Means:
    """The inputs of curation in addition to a store and a recipe."""

    scorer_of: ScorerOf | None = None
    """Builds the scorer of metrics, for regression cases."""
    redact: Redact = lambda case: case
    reviewed: Decisions = NOTHING_DECIDED
    fixed: Sequence[CaseData] = ()
    keep_unproven: bool = False
    progress: Progress = lambda _: None


@dataclass(slots=True)
class Curated:
    """The cases that a recipe produced, and a report of how."""

    cases: list[CaseData] = field(default_factory=list)
    metrics: list[EvalMetric] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    unproven: int = 0
    undecided: int = 0
    """The number of unproven cases that a later check may prove."""
    picks: list[dict[str, object]] = field(default_factory=list)
    health: dict[str, object] | None = None
    window: float = 0.0
    """The number of turns of the traffic in the recipe's window."""

    @property
    def covered(self) -> float | None:
        """The share of the window's traffic that the cases represent; None for an empty window."""
        weight = sum(case["source"]["curation"]["weight"] for case in self.cases)
        return min(1.0, weight / self.window) if self.window else None

    @property
    def with_several_picked_turns(self) -> int:
        """The number of cases with picked turns before the last one, whose traffic no case represents."""
        origins = (case["source"]["curation"]["from"] for case in self.cases)
        return sum(len(origin["invocationIds"]) > 1 for origin in origins)


def curate(store: StoreReader, recipe: Recipe, means: Means) -> Curated:
    """Return the cases that a recipe creates from the landed turns.

    Raises InputError if nothing has landed.
    """
    if not store.rows("SELECT 1 FROM turns LIMIT 1"):
        raise InputError(f"{store.path}: nothing has landed yet; land a log with `evaltap consume`")
    choices = choose(store, recipe, means.progress)
    read = read_sessions(store, (one.turn.key for one in choices.chosen))
    sessions = {key: session.whole() for key, session in read.items()}
    check = None
    if recipe.expect == "regression":
        assert means.scorer_of is not None  # the caller provides it for regression recipes
        sessions = with_kept_references(store, sessions)
        metrics_ = metrics_that_failed(store, sessions.values())
        check = RegressionCheck(metrics_, means.scorer_of, means.fixed)
    made = Curated(picks=choices.picks, window=choices.window)
    if recipe.radius is not None:
        made.health = health(choices.groups)
    seen: dict[tuple[str, ...], CaseData] = {}
    metrics: dict[str, EvalMetric] = {}
    for session, chosen in _cases(recipe, choices, sessions):
        try:
            case, used = _case(recipe, means, check, session, chosen)
        except ExcludedTurnError as error:
            made.left_out.append(_left_out(chosen, str(error)))
            continue
        if check is not None and (why := check.unproven(case, used)):
            made.unproven += 1
            made.undecided += why.undecided
            made.left_out.append(_left_out(chosen, why.why))
            if not means.keep_unproven:
                continue
            case["source"]["curation"]["labels"].append("unproven")
        same = _sameness(recipe, case, chosen)
        if first := seen.get(same):
            # The first one represents the traffic of this one too.
            source, more = (one["source"]["curation"] for one in (first, case))
            source["weight"] = round(source["weight"] + more["weight"], 6)
            source["members"] += more["members"]
            made.left_out.append(_left_out(chosen, f"same content as {first['evalId']}"))
            continue
        seen[same] = case
        metrics |= {metric.metric_name: metric for metric in used}
        made.cases.append(case)
    made.cases.sort(key=lambda case: str(case["evalId"]))
    made.metrics = [metrics[name] for name in sorted(metrics)]
    return made


def _cases(
    recipe: Recipe, choices: Choices, sessions: Mapping[CaseKey, Session]
) -> list[tuple[Session, list[Chosen]]]:
    """Return the origin of each case: the chosen turns of a session, or one chosen turn."""
    if recipe.unit == "turn":
        return [
            (sessions[one.turn.key[:3]].until([one.turn.key.invocation_id]), [one])
            for one in choices.chosen
        ]
    together: dict[CaseKey, list[Chosen]] = {}
    for one in choices.chosen:
        together.setdefault(one.turn.key[:3], []).append(one)
    return [
        (sessions[key].until(one.turn.key.invocation_id for one in chosen), chosen)
        for key, chosen in together.items()
    ]


def _case(
    recipe: Recipe,
    means: Means,
    check: RegressionCheck | None,
    session: Session,
    chosen: Sequence[Chosen],
) -> tuple[CaseData, list[EvalMetric]]:
    turns = [one.turn.key.invocation_id for one in chosen]
    rejected = means.reviewed.rejected.get(session.key, set())
    if set(turns) & rejected:
        raise ExcludedTurnError("a reviewer rejected it")
    if recipe.whole and session.has_holes:
        raise ExcludedTurnError(
            "earlier turns were not recorded, and the recipe requires whole sessions"
        )
    case, used = recorded_case(session, recipe.unit), list[EvalMetric]()
    labels = sorted(set(chain.from_iterable(one.labels for one in chosen)))
    if recipe.expect == "inputs":
        case = as_inputs(case)
    elif recipe.expect == "scenario":
        case = as_scenario(case)
    elif recipe.expect == "expected":
        approved = means.reviewed.approved.get(session.key, set())
        corrected = means.reviewed.corrected.get(session.key, {})
        good = Good(recipe.metrics, approved, rejected, corrected)
        case = as_expected(case, session, turns, good)
        labels.append("promoted")
    elif check is not None:
        corrected = means.reviewed.corrected.get(session.key, {})
        case, used = check.case(case, session, turns, corrected)
    last = _last(session, chosen)
    source = provenance(
        session,
        turns,
        recipe=recipe.name,
        labels=labels,
        weight=round(sum(one.weight for one in last), 6),
        members=sum(one.members for one in last),
    )
    decided = means.reviewed.by.get(session.key, {})
    if reviews := [review for turn, review in decided.items() if turn in turns]:
        source["review"] = dict(reviews[-1])
    return sealed(case, source, means.redact), used


def _last(session: Session, chosen: Sequence[Chosen]) -> list[Chosen]:
    """Return the chosen turns that a case stands for: the verdict on its last turn says nothing of others."""
    ids = {session.turns[-1].invocation_id, *session.turns[-1].earlier}
    return [one for one in chosen if one.turn.key.invocation_id in ids]


def sealed(case: CaseData, source: dict[str, Json], redact: Redact) -> CaseData:
    """Return a case as a set holds it: redacted, with its provenance and the hash of its content."""
    # Users' messages may be older than a redaction rule.
    case = redact(case)
    # In the form of the file, so that the hash is that of the data read back.
    case = parse(EvalCase, case, place=f"case {case['evalId']!r:.40}").model_dump(by_alias=True)
    source["contentHash"] = content_hash(case)
    case["source"] = {"curation": source}
    return case


def metrics_that_failed(
    store: StoreReader, sessions: Iterable[Session]
) -> Mapping[str, EvalMetric]:
    """Return the metrics under which turns of the sessions failed, by digest."""
    wanted = {
        digest
        for session in sessions
        for digest in failed_metrics(session, {one.invocation_id for one in session.turns}).values()
    }
    rows = store.rows(
        "SELECT DISTINCT ON (metric_digest) metric_digest, metric_json FROM run_metrics"
        " WHERE metric_digest IN $digests ORDER BY metric_digest, run_id",
        {"digests": sorted(wanted)},
    )
    return {digest: metrics_of([canonical.loads(text.encode())])[0] for digest, text in rows}


def _sameness(recipe: Recipe, case: CaseData, chosen: Sequence[Chosen]) -> tuple[str, ...]:
    """Return the keys by which a case is a duplicate: its content and, for recorded behaviour, its blocks."""
    content = case["source"]["curation"]["contentHash"]
    if recipe.expect != "none":
        return (content,)
    return (content, *sorted("\x1f".join(one.turn.block) for one in chosen))


def _left_out(chosen: Sequence[Chosen], reason: str) -> dict[str, str]:
    return {"turn": chosen[-1].turn.key.name, "reason": reason}
