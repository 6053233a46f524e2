"""`evaltap curate`: create or update an eval set from landed cases."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.curate import CurateOptions
from evaltap.cli.progress import progress
from evaltap.cli.redaction import case_redactor
from evaltap.cli.scoring import judge_session
from evaltap.cli.stores import choice_of, open_chosen
from evaltap.evaluator.analysis.filters.choice import check_condition
from evaltap.evaluator.analysis.traffic import told_of_runs
from evaltap.evaluator.cases.evalsets.difference import difference
from evaltap.evaluator.cases.evalsets.files import SetFile, read_set, write_set
from evaltap.evaluator.curation.curate import Curated, Means, curate
from evaltap.evaluator.curation.recipe import BUILT_IN, Recipe, built_in, read_recipe
from evaltap.evaluator.curation.review.queue import decisions
from evaltap.evaluator.curation.updating import add_to, update, write_metrics
from evaltap.evaluator.reports.set_difference import print_difference
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import check_set_name, eval_set_name, write_bytes
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.files.refused import no_such_file
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted

SHOWN = 5


def run(options: CurateOptions) -> int:
    """Pick the cases and write the set."""
    recipe = _recipe(options)
    existing = _existing_set(options)
    choice = choice_of(options.chosen, recipe.filter)
    with (
        judge_session("curate", options.judges) as judges,
        open_chosen([options.db], choice) as store,
    ):
        made = _curated(options, recipe, store, judges)
        if apart := told_of_runs(store, recipe.where):
            say("curate", apart)
        # With a filter, a case that is not found may still be in the store.
        landed = None if choice else set(store.column("SELECT DISTINCT eval_id FROM cases"))
    if options.into is not None:
        updated = add_to(existing.cases, made.cases)
    else:
        prune = options.prune and bool(made.cases)  # selecting nothing empties no set
        updated = update(existing.cases, made.cases, prune=prune, landed=landed)
    report: dict[str, Any] = {
        "recipe": recipe.name,
        "set": str(target_of(options)),
        "cases": len(updated.cases),
        **updated.data(),
        "picks": made.picks,
        "left_out": made.left_out,
        "health": made.health,
        "window": made.window,
        "covered": made.covered,
        "with_several_picked_turns": made.with_several_picked_turns,
    }
    printed = dict(report)
    if options.diff:
        found = difference(existing.cases, updated.cases)
        if options.json:
            printed["diff"] = found.data()
        else:
            print_difference(found)
    if not options.dry_run and not options.diff and (made.cases or existing.cases):
        target = target_of(options)
        if made.metrics:
            write_metrics(target, made.metrics)
        write_set(target, existing, updated.cases)
    if options.report:
        write_bytes(options.report, canonical.dumps(report, readable=True))
    if options.json:
        print_json(printed)
    else:
        _print(options, report)
    return _code(made, recipe)


def _code(made: Curated, recipe: Recipe) -> int:
    """Return the exit code; say so if there is nothing to create a case from."""
    if made.unproven:
        return 1 if made.unproven > made.undecided else 3
    if made.cases:
        return 0
    hint = (
        "no turn has been approved yet; approve some with `evaltap review`"
        if recipe.name == "approved"
        else ("no turn to create a case from; see what has landed with `evaltap cases`")
    )
    say("curate", hint)
    return 3


def target_of(options: CurateOptions) -> Path:
    """Return the set that is written."""
    target = options.out or options.into
    assert target is not None  # see _recipe
    return target


def _recipe(options: CurateOptions) -> Recipe:
    if (options.out is None) == (options.into is None):
        raise InputError(
            "no eval set given; name one to write with --out SET, or one to add to with --into SET"
        )
    recipe = _named_recipe(options)
    if options.all:
        recipe = recipe.everything()
    expect = {"recorded": "none"}.get(options.expect or "", options.expect)
    recipe = recipe.changed(
        expect=expect,
        unit=options.unit,
        limit=options.limit,
        seed=options.seed,
        metrics=options.metric or None,
    )
    if recipe.expect != "regression" and (options.fixed or options.keep_unproven):
        raise InputError("--fixed, --keep-unproven: only work with --as regression; add it")
    if recipe.expect != "expected" and options.metric:
        raise InputError("--metric: only works with --as expected; add it")
    return recipe


def _named_recipe(options: CurateOptions) -> Recipe:
    if options.recipe and options.like:
        raise InputError("--recipe and --like: give only one of them")
    if options.recipe:
        return read_recipe(options.recipe)
    if options.like is None and options.expect == "regression":
        return BUILT_IN["regressions"]
    if options.like is None and options.expect == "expected" and not options.metric:
        return BUILT_IN["approved"]
    return built_in(options.like or "representative")


def _existing_set(options: CurateOptions) -> SetFile:
    check_set_name(target_of(options))
    if target_of(options).exists():
        return read_set(target_of(options))
    if options.into is not None:
        raise InputError(no_such_file(options.into, "use --out to write a new eval set"))
    return SetFile(eval_set_name(target_of(options)), ())


def _curated(
    options: CurateOptions, recipe: Recipe, store: StoreReader, judges: JudgeSession
) -> Curated:
    if recipe.where:
        check_condition(store, recipe.where, name="from.where")

    def scorer_of(metrics: Sequence[EvalMetric]) -> CaseScorer:
        scorer = CaseScorer(metrics, services=judges.services(metrics))
        judges.check_reachable(metrics)
        return scorer

    with progress("texts compared") as compared:
        means = Means(
            scorer_of=scorer_of,
            redact=case_redactor(),
            reviewed=decisions(store),
            fixed=tuple(iter_cases(options.fixed)) if options.fixed else (),
            keep_unproven=options.keep_unproven,
            progress=compared,
        )
        return curate(store, recipe, means)


def _print(options: CurateOptions, report: dict[str, Any]) -> None:
    dry = options.dry_run or options.diff
    wrote = "would hold" if dry else "holds"
    changes = [
        f"{len(report[name]):,} {name}"
        for name in ("added", "updated", "kept", "gone", "pruned", "same")
        if report[name]
    ]
    print(
        f"{target_of(options)} {wrote} {counted(report['cases'], 'case')}: {', '.join(changes) or 'none'}"
    )
    for pick in report["picks"]:
        print(f"  {pick['label']}: {pick['taken']:,} of {counted(pick['offered'], 'turn')}")
        if note := pick.get("note"):
            say("curate", f"{pick['label']}: {note}")
    if report["covered"] is not None:
        print(
            f"  covered: {report['covered']:.1%} of the {counted(round(report['window']), 'turn')} of the"
            " window, as the weights of the cases say"
        )
    if several := report["with_several_picked_turns"]:
        print(
            f"  with several picked turns: {counted(several, 'session')}; each stands for turns like its last"
            " one only (--unit turn makes each turn a case)"
        )
    if health := report["health"]:
        print(
            f"  near-duplicates: {counted(health['turns'], 'turn')} in"
            f" {counted(health['groups'], 'group')}, the largest of {health['largest']:,}"
        )
        for warning in health["warnings"]:
            print(f"  warning: {warning}")
    for one in report["left_out"][:SHOWN]:
        say("curate", f"left out: {one['turn']}: {one['reason']}")
    rest = len(report["left_out"]) - SHOWN
    if rest > 0:
        say("curate", f"left out: {rest:,} more (--json lists all)")
