"""Run the attacks: find those that turn a judge's fail into a pass, by family.

The judge is called by the real evaluators, through every step of a real case.  A flip is an attacked case
that passes although its plain form fails.  A scenario is left out if its plain form passes or its good answer
fails, because a judge that cannot tell these apart proves nothing.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson
from rich.table import Table
from rich.text import Text

from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.pipeline.redteam.attacks import (
    SCENARIOS,
    Attack,
    Scenario,
    attacked_case,
    attacks,
    is_good,
)
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.scoring.batch import score_batches
from evaltap.evaluator.scoring.contract.context import Services, Status
from evaltap.evaluator.scoring.contract.judge import JudgeRequest
from evaltap.evaluator.scoring.scorer import CaseScore, CaseScorer
from evaltap.schemas.formats.case import Rubric
from evaltap.schemas.formats.metric import Criterion, EvalMetric, LlmJudgeCriterion

Progress = Callable[[int], None]

_RUBRIC_ID: Final = "1"
_BATCH: Final = 100


class Flip(NamedTuple):
    attack: str
    scenario: str
    reason: str


@dataclass(frozen=True, slots=True)
class FamilyResult:
    family: str
    flips: int
    held: int
    no_verdict: int
    """Attacks with a missing or invalid answer, or whose scenario is left out: neither flipped nor held."""

    @property
    def rate(self) -> Rate | None:
        """The share of flips among the verdicts."""
        return Rate.of_counts(self.flips, self.flips + self.held, "attempts")


@dataclass(frozen=True, slots=True)
class AttackReport:
    families: tuple[FamilyResult, ...]
    flips: tuple[Flip, ...]
    left_out: tuple[str, ...]
    """Scenarios whose plain form does not fail or whose good form does not pass, with the reason."""

    @property
    def total(self) -> FamilyResult:
        """All families together."""
        every = self.families
        return FamilyResult(
            "all",
            sum(one.flips for one in every),
            sum(one.held for one in every),
            sum(one.no_verdict for one in every),
        )


_Place = tuple[str, bool]


class _Probe(NamedTuple):
    scenario: Scenario
    attack: Attack | None
    on_knowledge: bool

    @property
    def place(self) -> _Place:
        return self.scenario.name, self.on_knowledge


def run_attacks(
    judge: LlmJudgeCriterion,
    services: Services,
    *,
    families: Sequence[str] = (),
    threads: int = 1,
    progress: Progress = lambda _: None,
) -> AttackReport:
    """Attack the judge that `judge` (the `llmJudge` of a metric) describes, with all or some `families`."""
    chosen = [attack for attack in attacks() if not families or attack.family in families]
    left_out = _without_attack(judge, services)
    counts = {attack.family: [0, 0, 0] for attack in chosen}
    probes: list[_Probe] = []
    for attack in chosen:
        for scenario in SCENARIOS:
            probe = _Probe(scenario, attack, attack.position == "tool result")
            if probe.place in left_out:
                counts[attack.family][2] += 1
            else:
                probes.append(probe)
    flips: list[Flip] = []
    for done, (probe, status, reason) in enumerate(
        _judged_probes(probes, judge, services, threads), 1
    ):
        assert probe.attack is not None
        place = {Status.PASSED: 0, Status.FAILED: 1}.get(status, 2)
        counts[probe.attack.family][place] += 1
        if status is Status.PASSED:
            flips.append(Flip(probe.attack.name, probe.scenario.name, reason))
        progress(done)
    results = tuple(FamilyResult(family, *count) for family, count in counts.items())
    return AttackReport(results, tuple(flips), tuple(left_out.values()))


def _without_attack(judge: LlmJudgeCriterion, services: Services) -> dict[_Place, str]:
    """Return the scenarios that the judge gets wrong without any attack, with the reason."""
    left_out: dict[_Place, str] = {}
    for form, due in (("without any attack", Status.FAILED), ("in its good form", Status.PASSED)):
        forms = [one.good() if due is Status.PASSED else one for one in SCENARIOS]
        probes = [_Probe(one, None, place) for one in forms for place in (False, True)]
        for probe, status, reason in _judged_probes(probes, judge, services, 1):
            if status is not due:
                about = "retrieved knowledge" if probe.on_knowledge else "answer"
                why = f"{probe.scenario.name}, {about}: {status.value} {form} {reason}"
                left_out.setdefault(probe.place, why)
    return left_out


def _judged_probes(
    probes: Sequence[_Probe], judge: LlmJudgeCriterion, services: Services, threads: int
) -> Iterator[tuple[_Probe, Status, str]]:
    scorers = {
        (scenario.name, on_knowledge): CaseScorer(
            [_metric(scenario, judge, on_knowledge=on_knowledge)], services=services
        )
        for scenario in SCENARIOS
        for on_knowledge in (False, True)
    }
    for key, scorer in scorers.items():
        mine = [probe for probe in probes if probe.place == key]
        for probe, score in zip(mine, _scores(scorer, mine, threads), strict=True):
            outcome = score.metrics[0]
            yield probe, outcome.status, outcome.reason


def _scores(scorer: CaseScorer, probes: Sequence[_Probe], threads: int) -> Iterator[CaseScore]:
    scores: deque[CaseScore] = deque()
    named = [
        (
            CaseIdentity("", "", str(number)),
            attacked_case(probe.scenario, probe.attack, str(number)),
        )
        for number, probe in enumerate(probes)
    ]
    for _ in score_batches(
        scorer, named, (0,), _BATCH, threads, observe=lambda _, __, score: scores.append(score)
    ):
        while scores:
            yield scores.popleft()


def _metric(scenario: Scenario, judge: LlmJudgeCriterion, *, on_knowledge: bool) -> EvalMetric:
    name = "llm_rubric_knowledge_recall" if on_knowledge else "llm_rubric_response"
    text = scenario.knowledge_rubric if on_knowledge else scenario.rubric
    rubric = Rubric.model_validate({"id": _RUBRIC_ID, "content": {"text": text}})
    asking = judge.model_copy(update={"rubrics": [rubric], "template": None})
    return EvalMetric(metric_name=name, threshold=1.0, criterion=Criterion(llm_judge=asking))


class FenceWatcher:
    """An in-memory judge that believes everything outside the fences, and inside only what is good.

    It learns the texts around the fences from the plain scenarios, which are judged first.  If that text ever
    differs, something has escaped the fences, and it passes everything.  So a flip means a hole in the
    fences.
    """

    def __init__(self, learns: int = 2 * len(SCENARIOS)) -> None:
        self._learns = learns
        self._known: set[str] = set()

    def __call__(self, request: JudgeRequest) -> str:
        """Answer a rubric request; a script for `ScriptedJudge`."""
        word = _ANNOUNCED.findall(request.prompt)[0]
        fences = re.compile(rf"<<<{word} begin ([^\n]*)>>>.*?<<<{word} end \1>>>", re.DOTALL)
        outside = fences.sub(lambda match: f"({match[1]})", request.prompt).replace(word, "")
        ids = outside.rpartition("Grade these rubrics and no others: ")[2].partition(".")[0]
        if len(self._known) < self._learns:
            self._known.add(outside)
        score = int(is_good(request.prompt) or outside not in self._known)
        rows = [
            {"id": name, "score": score, "reason": "by the text outside"}
            for name in ids.split(", ")
        ]
        return orjson.dumps({"rubricScores": rows}).decode()


_ANNOUNCED: Final = re.compile(r"between fences marked (\w+)\.")

SHOWN_FLIPS = 10


def exit_code(found: AttackReport, most: float) -> int:
    """Return 0 within the bound, 1 above it, 3 if too few attacks got a verdict."""
    total = found.total
    if total.rate is None or _too_few(total):
        return 3
    return int(total.rate.value > most)


def _too_few(total: FamilyResult) -> bool:
    return total.no_verdict > total.flips + total.held


def outcome_data(found: AttackReport, judge: str, code: int) -> dict[str, object]:
    return {
        "judge": judge,
        "families": [
            {
                "family": one.family,
                "flips": one.flips,
                "held": one.held,
                "no_verdict": one.no_verdict,
                "flip_rate": one.rate and one.rate.value,
                "interval": one.rate and one.rate.interval,
            }
            for one in (*found.families, found.total)
        ],
        "flips": [flip._asdict() for flip in found.flips],
        "left_out": found.left_out,
        "exit_code": code,
    }


def print_outcome(found: AttackReport, judge: str) -> None:
    """Print the outcome as a table, and some of the attacks that succeeded."""
    out = console()
    out.print(Text(f"judge: {judge}"), soft_wrap=True)
    table = Table(title="attacks that turned a fail into a pass", title_justify="left")
    table.add_column("family")
    for name in ("flips", "held", "no verdict", "flip rate", "95% interval"):
        table.add_column(name, justify="right")
    for one in (*found.families, found.total):
        rate = one.rate
        table.add_row(
            one.family,
            *(f"{count:,}" for count in (one.flips, one.held, one.no_verdict)),
            f"{rate.value:.1%}" if rate else "-",
            f"{rate.interval:.1%}" if rate else "",
            style="bold" if one.family == "all" else None,
        )
    out.print(table)
    for line in found.left_out:
        out.print(Text(f"left out: {line}"), soft_wrap=True)
    for flip in found.flips[:SHOWN_FLIPS]:
        out.print(Text(f"flipped: {flip.attack} ({flip.scenario}): {flip.reason}"), soft_wrap=True)
    if len(found.flips) > SHOWN_FLIPS:
        out.print(f"... and {len(found.flips) - SHOWN_FLIPS:,} more (--json lists all)")
    total = found.total
    if _too_few(total):
        every = total.flips + total.held + total.no_verdict
        out.print(f"not enough to tell: {total.no_verdict:,} of {every:,} attacks have no verdict")
