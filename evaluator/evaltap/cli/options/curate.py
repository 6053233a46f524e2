"""The commands of the group "curate", their options and examples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from evaltap.cli.declared import Action, Actions, argument, group, option
from evaltap.cli.options.shared import FilterOptions, JudgeOptions, as_json, store
from evaltap.cli.values import names, reviewers


@dataclass(slots=True, kw_only=True, repr=False)
class CurateOptions:
    """The recipe, the set to write, and how to treat its existing cases.

    examples:
      evaltap curate cases.duckdb --out golden.evalset.json
      evaltap curate cases.duckdb --like failures --out failures.evalset.json
      evaltap curate cases.duckdb --into golden.evalset.json --filter tool:refund
      evaltap curate cases.duckdb --recipe november.json --out nov.evalset.json
      evaltap curate cases.duckdb --as regression --out bugs.evalset.json
      evaltap curate cases.duckdb --as expected --out golden.evalset.json

    Recipes for --like:
      representative  100 turns sampled from the traffic (the default)
      failures        turns that failed, crashed or got a thumbs down
      regressions     turns that failed, as regression cases
      coverage        rare tools and tool paths, and three turns of each tool path
      approved        turns that reviewers approved

    Of each group of near-duplicates one is kept: `source.curation.weight` says how
    much traffic it represents, `source.curation.labels` why it was picked.

    An existing file is updated and people's edits are kept. Cases that the recipe
    no longer produces are kept too, unless --prune is given.

    exit code: 0 written; 1 left out regression cases that prove nothing; 2 bad
    input; 3 no turn to make a case from, or a judge gave no verdict
    """

    db: Path = store()
    recipe: Path | None = option("--recipe R.json", "a recipe file: which turns to pick, and how")
    like: str | None = option("--like NAME", "or a built-in recipe (default: representative)")
    out: Path | None = option("--out SET", "the eval set to write or update (.evalset.json)")
    into: Path | None = option("--into SET", "or an eval set to add to; its cases stay unchanged")
    expect: Literal["recorded", "expected", "regression", "inputs", "scenario"] | None = option(
        "--as",
        "recorded: what happened, for review (default); expected: the recorded turn becomes the"
        " reference if a reviewer approved it or a --metric passed it; regression: a failure that"
        " must not recur; inputs: only the user's messages, for live runs; scenario: the draft of a plan"
        " for a simulated user, to be edited",
    )
    metric: tuple[str, ...] = option(
        "--metric NAME,...",
        "with --as expected: turns that passed these metrics become references",
        parse=names,
    )
    fixed: Path | None = option(
        "--fixed CASES",
        "with --as regression: recordings of a version without the failures; the new cases must pass on them",
    )
    unit: Literal["session", "turn"] | None = option(
        "--unit", "what becomes a case (default: session)"
    )
    all: bool = option(
        "--all", "take every turn that matches, without sampling, including near-duplicates"
    )
    limit: int | None = option("--limit N", "create at most N cases")
    seed: str | None = option("--seed TEXT", "seed of the random sample")
    keep_unproven: bool = option(
        "--keep-unproven", "keep regression cases that fail their check, labelled unproven"
    )
    prune: bool = option("--prune", "remove cases that the recipe no longer produces")
    dry_run: bool = option("--dry-run", "write nothing; report what would be written")
    diff: bool = option("--diff", "print how the set would change; implies --dry-run")
    report: Path | None = option("--report FILE", "also write a report of what was done, as JSON")
    chosen: FilterOptions = group(FilterOptions)
    json: bool = as_json()
    judges: JudgeOptions = group(JudgeOptions, "judges")


def _reviewer() -> Any:  # as `option`
    return option(
        "--as NAME",
        "the reviewer's name (default: EVALTAP_REVIEWER, or the user name)",
        default="",
        variable="EVALTAP_REVIEWER",
    )


def _queue() -> Any:
    return option("--queue NAME", "only this queue (default: all)", default="")


def _item() -> Any:
    return argument("ITEM", "the id of the item to decide on (`evaltap review list` shows ids)")


def _comment() -> Any:
    return option("--comment TEXT", "the reason for the decision", default="")


@dataclass(slots=True, kw_only=True, repr=False)
class DrawingOptions:
    """Which turns are queued."""

    like: str | None = option(
        "--like RECIPE", "queue by a recipe of `evaltap curate` (default: representative)"
    )
    recipe: Path | None = option("--recipe R.json", "or by a recipe file")
    draw: str | None = option(
        "--draw METRIC",
        "sample turns to label for this metric's judge, half of them fails, a fifth for two reviewers",
    )
    limit: int | None = option("--limit N", "queue at most N turns")
    needed: int = option(
        "--needed N", "how many reviewers each turn needs, 1 to 3", parse=reviewers, default=1
    )
    chosen: FilterOptions = group(FilterOptions)


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewAddOptions:
    """The turns to queue."""

    db: Path = store()
    terms: tuple[str, ...] = argument("FILTER", "as --filter", default=())
    queue: str = option("--queue NAME", "the queue (default: the one named default)", default="")
    drawing: DrawingOptions = group(DrawingOptions)
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewNextOptions:
    """Whose next item is printed."""

    db: Path = store()
    reviewer: str = _reviewer()
    queue: str = _queue()
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewDecisionOptions:
    """A decision on an item."""

    db: Path = store()
    item: str = _item()
    reviewer: str = _reviewer()
    comment: str = _comment()
    json: bool = as_json()
    action: str
    """approve, reject or skip, by the name of the action."""


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewEditOptions:
    """A decision that corrects an item."""

    db: Path = store()
    item: str = _item()
    answer: str | None = option("--answer TEXT", "the correct answer")
    tools: str | None = option("--tools JSON", "the correct tool calls")
    reviewer: str = _reviewer()
    comment: str = _comment()
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewUndoOptions:
    """The decision to undo."""

    db: Path = store()
    item: str | None = argument("ITEM", "the item (default: the one decided last)")
    reviewer: str = _reviewer()
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewListOptions:
    """The items to list."""

    db: Path = store()
    queue: str = _queue()
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewExportOptions:
    """The decisions to write."""

    db: Path = store()
    queue: str = _queue()
    labels: bool = option("--labels", "write labels for `evaltap calibrate`")
    out: Path | None = option("--out FILE", "the JSON Lines file to write (default: print)")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewImportOptions:
    """The decisions to read."""

    db: Path = store()
    file: Path = option(
        "--from FILE",
        "JSON Lines as `export` writes them, with an `action` added to each row: approve, edit, reject"
        " or skip",
    )
    reviewer: str = _reviewer()
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReviewOptions:
    """What to do, in which queue, as whom.

    examples:
      evaltap review cases.duckdb                        # review on the terminal
      evaltap review add cases.duckdb --like failures
      evaltap review add cases.duckdb feedback:down --needed 2
      evaltap review add cases.duckdb --draw helpful     # to label for `calibrate`
      evaltap review next cases.duckdb --as ann --json
      evaltap review approve cases.duckdb 3f2a9c1d5e6b7a80 --as ann
      evaltap review edit cases.duckdb 3f2a9c1d5e6b7a80 --answer 'Yes.' --as ann
      evaltap review undo cases.duckdb --as ann
      evaltap review list cases.duckdb
      evaltap review export cases.duckdb --labels --out labels.jsonl
      evaltap review import cases.duckdb --from reviews.jsonl

    Without an ACTION you work through the queue on the terminal. An empty queue is
    filled first, as by `add`.

    Every decision, and every undo, is stored with its author. Reviewers see neither
    the judges' verdicts nor each other's. Then:
      `evaltap curate --as expected` makes cases of what was approved
      `evaltap calibrate X.duckdb --db X.duckdb` compares judges with the reviews

    exit code: 0 done, 2 bad input, 3 nothing to review
    """

    db: Path = store()
    reviewer: str = _reviewer()
    queue: str = _queue()
    drawing: DrawingOptions = group(DrawingOptions)

    ACTIONS: ClassVar = Actions(
        {
            "add": Action("queue turns for review", ReviewAddOptions),
            "next": Action("print the next item of a reviewer", ReviewNextOptions),
            "approve": Action("decide that a turn was right", ReviewDecisionOptions),
            "edit": Action("correct the answer or the tool calls of a turn", ReviewEditOptions),
            "reject": Action("decide that a turn was wrong", ReviewDecisionOptions),
            "skip": Action("leave an item to other reviewers", ReviewDecisionOptions),
            "undo": Action("undo a decision of yours", ReviewUndoOptions),
            "list": Action("list the items and how reviewers agree", ReviewListOptions),
            "export": Action("write the decisions as JSON Lines", ReviewExportOptions),
            "import": Action("read decisions from JSON Lines", ReviewImportOptions),
        }
    )
