"""The commands of the group "curate", their options and examples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from evaltap.cli.declared import Action, Actions, argument, group, option
from evaltap.cli.options.shared import (
    FilterOptions,
    JudgeOptions,
    PeriodOptions,
    as_json,
    store,
    stores,
)
from evaltap.cli.values import PeriodOrSet, amount, names, period_or_set, reviewers


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewAddOptions:
    """The turns to queue."""

    db: Path = store()
    terms: tuple[str, ...] = argument("FILTER", "as --filter", default=())
    queue: str = option("--queue NAME", "the queue (default: the one named default)", default="")
    drawing: DrawingOptions = group(DrawingOptions)
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewNextOptions:
    """Whose next item is printed."""

    db: Path = store()
    reviewer: str = _reviewer()
    queue: str = _queue()
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewDecisionOptions:
    """A decision on an item."""

    db: Path = store()
    item: str = _item()
    reviewer: str = _reviewer()
    comment: str = _comment()
    json: bool = as_json()
    action: str
    """approve, reject or skip, by the name of the action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEditOptions:
    """A decision that corrects an item."""

    db: Path = store()
    item: str = _item()
    answer: str | None = option("--answer TEXT", "the correct answer")
    tools: str | None = option("--tools JSON", "the correct tool calls")
    reviewer: str = _reviewer()
    comment: str = _comment()
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewUndoOptions:
    """The decision to undo."""

    db: Path = store()
    item: str | None = argument("ITEM", "the item (default: the one decided last)")
    reviewer: str = _reviewer()
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewListOptions:
    """The items to list."""

    db: Path = store()
    queue: str = _queue()
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewExportOptions:
    """The decisions to write."""

    db: Path = store()
    queue: str = _queue()
    labels: bool = option("--labels", "write labels for `evaltap calibrate`")
    out: Path | None = option("--out FILE", "the JSON Lines file to write (default: print)")
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesOptions:
    """The turns to compare, and the similarity that makes two turns near-duplicates.

    examples:
      evaltap duplicates cases.duckdb
      evaltap duplicates cases.duckdb --filter since:7d --json

    Turns with the same application, tools and outcome are compared by the Jaccard
    similarity of their 4-character shingles. All words that contain a digit count
    as the same word.

    exit code: 0 grouped, 2 bad input
    """

    db: Path = store()
    radius: float = option(
        "--radius X",
        "lowest similarity to the medoid of a group, 0 to 1 (default: 0.5)",
        parse=amount,
        default=0.5,
    )
    semantic: float | None = option(
        "--semantic X",
        "also group turns whose word vectors have at least this cosine similarity"
        " (evaltap[embeddings]; try 0.85)",
        parse=amount,
    )
    period: PeriodOptions = group(PeriodOptions)
    chosen: FilterOptions = group(FilterOptions)
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The two sets.

    examples:
      evaltap diff golden.evalset.json new.evalset.json
      git show main:golden.evalset.json > /tmp/before.evalset.json
      evaltap diff /tmp/before.evalset.json golden.evalset.json --content

    signs: - removed, + added, ~ changed, > renamed
    exit code: 0 equal, 1 different, 2 bad input
    """

    before: Path = argument("A", "the older eval set (.evalset.json, or JSON Lines of cases)")
    after: Path = argument("B", "the newer one")
    content: bool = option(
        "--content",
        "compare only inputs, references, rubrics and context, not recordings and provenance",
    )
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """The sets, their common ancestor, and the file for the result.

    examples:
      evaltap merge golden.evalset.json more.evalset.json --out golden.evalset.json
      evaltap merge a.evalset.json b.evalset.json --base old.evalset.json \\
          --out all.evalset.json

    To use it as a git merge driver, add to .gitattributes:
      *.evalset.json merge=evaltap
    and run once in each clone:
      git config merge.evaltap.driver 'evaltap merge %A %B --base %O --out %A'

    exit code: 0 merged; 1 both sides changed the same case: OURS was kept, and its
    id is listed; 2 bad input
    """

    ours: Path = argument("OURS", "your eval set")
    theirs: Path = argument("THEIRS", "the eval set to merge into it")
    base: Path | None = option("--base BASE", "their common ancestor")
    out: Path = option("--out SET", "the eval set to write")
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageOptions:
    """The sets, the traffic, and the dimensions to compare by.

    examples:
      evaltap coverage cases.duckdb --set golden.evalset.json
      evaltap coverage cases.duckdb --set golden.evalset.json --by tools,intent \\
          --since 7d --json

    Coverage is the share of traffic turns whose value has cases in the sets, with
    its 95 % interval. Gaps are the values without cases, most frequent first.

    Dimensions for --by:
      tools     the tools of a turn, in order
      tool      each tool that was called
      model     the model
      language  the language of the question
      intent    a group of near-duplicate questions, named by one of them
      version   the agent's version

    exit code: 0 compared, 2 bad input, 3 no turn to compare with
    """

    db: tuple[Path, ...] = stores()
    sets: tuple[Path, ...] = option(
        "--set SET", "an eval set to compare with; may be repeated", required=True
    )
    by: tuple[str, ...] = option(
        "--by NAME,...",
        "dimensions to compare by (default: tools,tool,language,intent)",
        parse=names,
        default=["tools", "tool", "language", "intent"],
    )
    app: str = option("--app A", "only this application (default: all)", default="")
    period: PeriodOptions = group(PeriodOptions)
    min: int = option(
        "--min N", "number of cases that are enough to cover a value (default: 1)", default=1
    )
    fold: bool = option("--fold", "count consecutive calls of one tool once in a tool path")
    chosen: FilterOptions = group(FilterOptions)
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOptions:
    """The two periods, and the dimensions to compare by.

    examples:
      evaltap drift cases.duckdb --before 2026-11-01/2026-11-08 \\
          --after 2026-11-08/2026-11-15
      evaltap drift cases.duckdb --before set:golden.evalset.json \\
          --after 2026-11-01/2026-12-01

    distance: half the sum of the absolute changes of all shares (total variation)
    expected: the mean distance if the mix had not changed
    p_value:  how often the distance would then be at least as large
    q_value:  the same, adjusted for several dimensions
    is_new:   the value does not occur in the first period

    exit code: 0 compared, 2 bad input, 3 a period without turns
    """

    db: tuple[Path, ...] = stores()
    before: PeriodOrSet = option(
        "--before A/B",
        "a period A/B from A up to but not including B (days or times in UTC), or an eval set as set:SET",
        parse=period_or_set,
    )
    after: PeriodOrSet = option("--after C/D", "the other period or eval set", parse=period_or_set)
    by: tuple[str, ...] = option(
        "--by NAME,...",
        "dimensions to test: tools, tool, model, language, intent, version (default:"
        " tools,model,language,intent)",
        parse=names,
        default=["tools", "model", "language", "intent"],
    )
    app: str = option("--app A", "only this application (default: all)", default="")
    json: bool = as_json()
