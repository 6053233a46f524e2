"""The options of `evaltap set …`: eval sets beside each other and beside the traffic."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaltap.cli.declared import STORE, argument, group, option
from evaltap.cli.options.shared import FilterOptions, PeriodOptions, as_json, store, stores
from evaltap.cli.values import PeriodOrSet, amount, names, period_or_set

ExportFormat = Literal[
    "trpc",
    "adk",
    "jsonl",
    "deepeval",
    "openai-evals",
    "langsmith",
    "langfuse",
    "huggingface",
    "promptfoo",
    "pytest",
]


@dataclass(slots=True, kw_only=True, repr=False)
class DuplicatesOptions:
    """The turns to compare, and the similarity that makes two turns near-duplicates.

    examples:
      evaltap set duplicates cases.duckdb
      evaltap set duplicates cases.duckdb --filter since:7d --json

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


@dataclass(slots=True, kw_only=True, repr=False)
class DiffOptions:
    """The two sets.

    examples:
      evaltap set diff golden.evalset.json new.evalset.json
      git show main:golden.evalset.json > /tmp/before.evalset.json
      evaltap set diff /tmp/before.evalset.json golden.evalset.json --content

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


@dataclass(slots=True, kw_only=True, repr=False)
class MergeOptions:
    """The sets, their common ancestor, and the file for the result.

    examples:
      evaltap set merge ours.evalset.json theirs.evalset.json --out all.evalset.json
      evaltap set merge a.evalset.json b.evalset.json --base old.evalset.json \\
          --out all.evalset.json

    To use it as a git merge driver, add to .gitattributes:
      *.evalset.json merge=evaltap
    and run once in each clone:
      git config merge.evaltap.driver 'evaltap set merge %A %B --base %O --out %A'

    The set's name and description are those of OURS.

    exit code: 0 merged; 1 both sides changed the same case: OURS was kept, unless
    it had removed the case, and its id is listed; 2 bad input
    """

    ours: Path = argument("OURS", "your eval set")
    theirs: Path = argument("THEIRS", "the eval set to merge into it")
    base: Path | None = option("--base BASE", "their common ancestor")
    out: Path = option("--out SET", "the eval set to write")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class CoverageOptions:
    """The sets, the traffic, and the dimensions to compare by.

    examples:
      evaltap set coverage cases.duckdb      # what a first set could contain
      evaltap set coverage cases.duckdb --set golden.evalset.json
      evaltap set coverage cases.duckdb --set g.evalset.json --by tools,intent \\
          --since 7d --json

    Coverage is the share of traffic turns whose value has cases in the sets, with
    its 95 % interval. Gaps are the values without cases, most frequent first.

    Dimensions for --by:
      tools     the tools of a turn, in order
      tool      each tool that was called
      model     the model
      language  the language of the question, where it is known
      intent    a group of near-duplicate questions, named by one of them
      version   the agent's version

    exit code: 0 compared, 2 bad input, 3 no turn to compare with
    """

    db: tuple[Path, ...] = stores()
    sets: tuple[Path, ...] = option(
        "--set SET", "an eval set to compare with; may be repeated (default: none)", default=[]
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


@dataclass(slots=True, kw_only=True, repr=False)
class DriftOptions:
    """The two periods, and the dimensions to compare by.

    examples:
      evaltap set drift cases.duckdb --before 2026-11-01/2026-11-08 \\
          --after 2026-11-08/2026-11-15
      evaltap set drift cases.duckdb --before set:golden.evalset.json \\
          --after 2026-11-01/2026-12-01

    distance: half the sum of the absolute changes of all shares (total variation)
    expected: the mean distance if the mix had not changed
    p_value:  how often the distance would then be at least as large
    q_value:  the same, adjusted for several dimensions
    is_new:   the value does not occur in the first period
    sessions: those with a known value in each period; a case of a set is one

    exit code: 0 compared, 2 bad input, 3 a period without turns or known values
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


@dataclass(slots=True, kw_only=True, repr=False)
class ExportOptions:
    """The cases to export, the format, and the file to write.

    examples:
      evaltap set export cases.duckdb --out cases.evalset.json
      evaltap set export cases.duckdb --out cases.jsonl        # JSON Lines of cases
      evaltap set export cases.duckdb --out cases.evalset.json --format adk
      evaltap set export cases.duckdb --out late.evalset.json --filter since:7d
      evaltap set export cases.duckdb --out golden.evalset.json --as expected
      evaltap set export golden.evalset.json --format deepeval --out goldens.json
      evaltap set export golden.evalset.json --format huggingface --out golden/
      evaltap set export golden.evalset.json --out golden.jsonl --check

    For tools without multi-turn cases, each turn becomes a row with the preceding
    conversation as messages.

    exit code: 0 written, or up to date with --check; 1 the file differs (--check);
    2 bad input
    """

    source: Path | None = argument(
        "SOURCE",
        "a store (X.duckdb), or an eval set (default: the store of evaltap.toml, or ./cases.duckdb)",
        variable=STORE,
    )
    out: Path = option("--out P", "the file to write (a folder for huggingface)")
    format: ExportFormat | None = option(
        "--format FORMAT",
        "the format to write: trpc, adk, jsonl, deepeval, openai-evals, langsmith, langfuse,"
        " huggingface, promptfoo, pytest (default: by the file's ending)",
    )
    id: str | None = option("--id ID", "the eval set's id (default: its own, or the file's name)")
    expect: Literal["recorded", "expected", "both"] = option(
        "--as",
        "of a store; recorded: what happened (default); expected: what happened is what should happen, for"
        " runs of a live agent (`curate --as expected` takes approved turns only); both: recorded, with"
        " itself as the reference",
        default="recorded",
    )
    with_actual: bool = option(
        "--with-actual",
        "for deepeval and openai-evals: include the recorded answers and tool calls",
    )
    check: bool = option("--check", "write nothing; exit with 1 if the file differs")
    chosen: FilterOptions = group(FilterOptions)
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class FmtOptions:
    """The files to format, and how.

    examples:
      evaltap set fmt math.evalset.json math.metrics.json
      evaltap set fmt --check evals/*.json     # exit 1 when a file is not canonical
      evaltap set fmt --to adk --stdout math.evalset.json

    API keys are never written; ${NAME} in judge settings is kept unexpanded.

    exit code: 0 all files are canonical, 1 one is not (--check), 2 bad input
    """

    files: tuple[Path, ...] = argument("FILE", "eval-set, metrics or result files")
    check: bool = option(
        "--check", "change nothing; exit with 1 if a file is not canonical", either="output"
    )
    stdout: bool = option(
        "--stdout", "print the result instead of rewriting files", either="output"
    )
    to: Literal["trpc", "adk"] | None = option(
        "--to", "write eval sets in this format (default: unchanged)"
    )
