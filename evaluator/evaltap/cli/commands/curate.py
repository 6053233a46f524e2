"""`evaltap curate`: create or update an eval set from landed cases."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evaltap.cli.options.common import add_database, add_json, progress
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.options.judges import JudgeOptions, JudgeSession, add_judging
from evaltap.cli.parsing import names, positive
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.missing import no_such_file
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from evaltap.evaluator.cases.evalsets.files import SetFile
    from evaltap.evaluator.curation.curate import Curated
    from evaltap.evaluator.curation.recipe import Recipe
    from evaltap.evaluator.curation.updating import Updated
    from evaltap.evaluator.scoring.scorer import CaseScorer
    from evaltap.evaluator.store.queries import StoreReader
    from evaltap.schemas.formats.metric import EvalMetric

SHOWN = 5


@dataclass(frozen=True, slots=True)
class CurateOptions:
    """The recipe, the set to write, and how to treat its existing cases."""

    command: str
    db: Path
    recipe: Path | None
    like: str | None
    out: Path | None
    into: Path | None
    expect: str | None
    metric: tuple[str, ...]
    fixed: Path | None
    unit: str | None
    all: bool
    limit: int | None
    seed: str | None
    keep_unproven: bool
    prune: bool
    dry_run: bool
    diff: bool
    report: Path | None
    json: bool
    chosen: FilterOptions
    judges: JudgeOptions

    @property
    def target(self) -> Path:
        """The set that is written."""
        target = self.out or self.into
        assert target is not None  # run checks it
        return target


_EPILOG: Final = (
    "examples:\n"
    "  evaltap curate cases.duckdb --out golden.evalset.json\n"
    "  evaltap curate cases.duckdb --like failures --out failures.evalset.json\n"
    "  evaltap curate cases.duckdb --into golden.evalset.json --filter tool:refund\n"
    "  evaltap curate cases.duckdb --recipe november.json --out nov.evalset.json\n"
    "  evaltap curate cases.duckdb --as regression --out bugs.evalset.json\n"
    "  evaltap curate cases.duckdb --as expected --out golden.evalset.json\n\n"
    "Recipes for --like:\n"
    "  representative  100 turns sampled from the traffic (the default)\n"
    "  failures        turns that failed, crashed or got a thumbs down\n"
    "  regressions     turns that failed, as regression cases\n"
    "  coverage        rare tools and tool paths, and three turns of each tool path\n"
    "  approved        turns that reviewers approved\n\n"
    "Of each group of near-duplicates one is kept: `source.curation.weight` says how much"
    " traffic it represents, `source.curation.labels` why it was picked.\n\n"
    "An existing file is updated and people's edits are kept. Cases that the recipe no longer"
    " produces are kept too, unless --prune is given.\n\n"
    "exit code: 0 written; 1 left out regression cases that prove nothing; 2 bad input; 3 no"
    " turn to make a case from, or a judge gave no verdict"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_database(parser)
    add("--recipe", type=Path, metavar="R.json", help="a recipe file: which turns to pick, and how")
    add("--like", metavar="NAME", help="or a built-in recipe (default: representative)")
    add("--out", type=Path, metavar="SET", help="the eval set to write or update (.evalset.json)")
    add(
        "--into",
        type=Path,
        metavar="SET",
        help="or an eval set to add to; its cases stay unchanged",
    )
    add(
        "--as",
        dest="expect",
        choices=("recorded", "expected", "regression", "inputs"),
        help="recorded: what happened, for review (default); expected: the recorded turn becomes the"
        " reference if a reviewer approved it or a --metric passed it; regression: a failure that must not"
        " recur; inputs: only the user's messages, for live runs",
    )
    add(
        "--metric",
        type=names,
        default=[],
        metavar="NAME,...",
        help="with --as expected: turns that passed these metrics become references",
    )
    add(
        "--fixed",
        type=Path,
        metavar="CASES",
        help="with --as regression: recordings of a version without the failures; the new cases must pass"
        " on them",
    )
    add("--unit", choices=("session", "turn"), help="what becomes a case (default: session)")
    add(
        "--all",
        action="store_true",
        help="take every turn that matches, without sampling, including near-duplicates",
    )
    add("--limit", type=positive, metavar="N", help="create at most N cases")
    add("--seed", metavar="TEXT", help="seed of the random sample")
    add(
        "--keep-unproven",
        action="store_true",
        help="keep regression cases that fail their check, labelled unproven",
    )
    add("--prune", action="store_true", help="remove cases that the recipe no longer produces")
    add("--dry-run", action="store_true", help="write nothing; report what would be written")
    add("--diff", action="store_true", help="print how the set would change; implies --dry-run")
    add("--report", type=Path, metavar="FILE", help="also write a report of what was done, as JSON")
    add_filter(parser)
    add_json(parser)
    add_judging(parser)
    parser.set_defaults(run=run, options=CurateOptions)


def run(options: CurateOptions) -> int:
    """Pick the cases and write the set."""
    from evaltap.evaluator.curation.updating import add_to, update

    recipe = _recipe(options)
    existing = _existing_set(options)
    chosen = options.chosen.and_filter(recipe.filter)
    with JudgeSession(options.judges) as judges, chosen.open([options.db]) as store:
        made = _curated(options, recipe, store, judges)
        # With a filter, a case that is not found may still be in the store.
        landed = None if chosen.choice() else _landed(store)
    if options.into is not None:
        updated = add_to(existing.cases, made.cases)
    else:
        updated = update(existing.cases, made.cases, prune=options.prune, landed=landed)
    report = _report(options, recipe, made, updated)
    printed = dict(report)
    if options.diff:
        from evaltap.cli.commands.diff import print_difference
        from evaltap.evaluator.cases.evalsets.difference import difference

        found = difference(existing.cases, updated.cases)
        if options.json:
            printed["diff"] = found.data()
        else:
            print_difference(found)
    if not options.dry_run and not options.diff and (made.cases or existing.cases):
        _write(options, existing.eval_set_id, made, updated)
    if options.report:
        from evaltap.schemas.files import canonical
        from evaltap.schemas.files.documents import write_bytes

        write_bytes(options.report, canonical.dumps(report, readable=True))
    if options.json:
        print(json.dumps(printed, ensure_ascii=False))
    else:
        _print(options, report)
    if made.unproven:
        return 1 if made.unproven > made.undecided else 3
    if made.cases:
        return 0
    hint = (
        "no turn has been approved yet; approve some with `evaltap review`"
        if recipe.name == "approved"
        else ("no turn to create a case from; see what has landed with `evaltap cases`")
    )
    print(f"evaltap curate: {hint}", file=sys.stderr)
    return 3


def _recipe(options: CurateOptions) -> "Recipe":
    from evaltap.evaluator.curation.recipe import BUILT_IN, built_in, read_recipe

    if (options.out is None) == (options.into is None):
        raise InputError(
            "no eval set given; name one to write with --out SET, or one to add to with --into SET"
        )
    if options.recipe and options.like:
        raise InputError("--recipe and --like: give only one of them")
    if options.recipe:
        recipe = read_recipe(options.recipe)
    elif options.like is None and options.expect == "regression":
        recipe = BUILT_IN["regressions"]
    elif options.like is None and options.expect == "expected" and not options.metric:
        recipe = BUILT_IN["approved"]
    else:
        recipe = built_in(options.like or "representative")
    if options.all:
        recipe = recipe.everything()
    expect = {"recorded": "none"}.get(options.expect or "", options.expect)
    recipe = recipe.changed(
        expect=expect, unit=options.unit, limit=options.limit, seed=options.seed,
        metrics=options.metric or None,
    )  # fmt: skip
    if recipe.expect != "regression" and (options.fixed or options.keep_unproven):
        raise InputError("--fixed, --keep-unproven: only work with --as regression; add it")
    if recipe.expect != "expected" and options.metric:
        raise InputError("--metric: only works with --as expected; add it")
    return recipe


def _existing_set(options: CurateOptions) -> "SetFile":
    from evaltap.evaluator.cases.evalsets.files import SetFile, read_set
    from evaltap.schemas.files.documents import check_set_name, eval_set_name

    check_set_name(options.target)
    if options.target.exists():
        return read_set(options.target)
    if options.into is not None:
        raise InputError(no_such_file(options.into, "use --out to write a new eval set"))
    return SetFile(eval_set_name(options.target), ())


def _curated(
    options: CurateOptions, recipe: "Recipe", store: "StoreReader", judges: JudgeSession
) -> "Curated":
    from evaltap.cli.options.redaction import case_redactor
    from evaltap.evaluator.analysis.filters.choice import check_condition
    from evaltap.evaluator.curation.curate import Means, curate
    from evaltap.evaluator.curation.review.queue import decisions
    from evaltap.schemas.files.documents import iter_cases

    if recipe.where:
        check_condition(store, recipe.where, name="from.where")

    def scorer_of(metrics: "Sequence[EvalMetric]") -> "CaseScorer":
        from evaltap.evaluator.scoring.scorer import CaseScorer

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


def _landed(store: "StoreReader") -> set[str]:
    return set(store.column("SELECT DISTINCT eval_id FROM cases"))


def _write(options: CurateOptions, name: str, made: "Curated", updated: "Updated") -> None:
    from evaltap.evaluator.cases.evalsets.files import write_set
    from evaltap.schemas.files.documents import read_metrics, write_document

    if made.metrics:
        path = metrics_path(options.target)
        known = {metric.metric_name: metric for metric in made.metrics}
        before = read_metrics(path) if path.is_file() else []
        kept = {metric.metric_name: metric for metric in before}
        # Keeps the changes that people made in the file.
        write_document(path, [*({**known, **kept}[one] for one in sorted({*known, *kept}))])
    write_set(options.target, name, updated.cases)


def metrics_path(path: Path) -> Path:
    """Return the path of the metrics file of a regression set: next to the set."""
    from evaltap.schemas.files.documents import eval_set_name

    return path.with_name(f"{eval_set_name(path)}.metrics.json")


def _report(
    options: CurateOptions, recipe: "Recipe", made: "Curated", updated: "Updated"
) -> dict[str, object]:
    return {
        "recipe": recipe.name,
        "set": str(options.target),
        "cases": len(updated.cases),
        **updated.data(),
        "picks": made.picks,
        "left_out": made.left_out,
        "health": made.health,
    }


def _print(options: CurateOptions, report: dict[str, Any]) -> None:
    dry = options.dry_run or options.diff
    wrote = "would hold" if dry else "holds"
    changes = [
        f"{len(report[name]):,} {name}"
        for name in ("added", "updated", "kept", "gone", "pruned", "same")
        if report[name]
    ]
    print(
        f"{options.target} {wrote} {counted(report['cases'], 'case')}: {', '.join(changes) or 'none'}"
    )
    for pick in report["picks"]:
        print(f"  {pick['label']}: {pick['taken']:,} of {pick['offered']:,} turns")
        if note := pick.get("note"):
            print(f"evaltap curate: {pick['label']}: {note}", file=sys.stderr)
    if health := report["health"]:
        print(
            f"  near-duplicates: {counted(health['turns'], 'turn')} in"
            f" {counted(health['groups'], 'group')}, the largest of {health['largest']:,}"
        )
        for warning in health["warnings"]:
            print(f"  warning: {warning}")
    for one in report["left_out"][:SHOWN]:
        print(f"evaltap curate: left out: {one['turn']}: {one['reason']}", file=sys.stderr)
    rest = len(report["left_out"]) - SHOWN
    if rest > 0:
        print(f"evaltap curate: left out: {rest:,} more (--json lists all)", file=sys.stderr)
