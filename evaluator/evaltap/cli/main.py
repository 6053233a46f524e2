"""The `evaltap` command: one parser; the module of a command is loaded only when it is called.

Exit codes, the same for every command: 0 pass, 1 quality below the bar, 2 bad input or
configuration, 3 incomplete (judge unavailable, evidence missing, inconclusive).
"""

import argparse
import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from evaltap.cli.declared import Kind, configure, described, options_of
from evaltap.cli.interpreter import never_collecting
from evaltap.cli.messages import say
from evaltap.cli.parsing import CommandParser
from evaltap.cli.settings import settings_in_effect
from evaltap.cli.signals import interrupted_afterwards
from evaltap.cli.visible import visible_output
from evaltap.schemas.errors import ConfigurationError, EvaltapError, InputError

FAMILIES = {
    "set": {
        "coverage": "show what occurs in production but not in eval sets",
        "diff": "show how two eval sets differ",
        "drift": "test whether the mix of traffic changed between two periods",
        "duplicates": "group turns that are near-duplicates",
        "export": "write the landed cases of a DuckDB file as one eval set",
        "fmt": "rewrite eval-set, metrics and result files in canonical form",
        "merge": "merge two eval sets into one",
    },
    "store": {
        "archive": "write a store as Parquet files, which are read like a store",
        "attach": "write SQL that reads the files of several consumers as one",
        "dlq": "list, show and replay records that could not be read",
        "erase": "erase a person's cases from log, store and eval sets",
        "prune": "delete sessions older than a given age from a DuckDB file",
    },
}
"""Commands of two words: `evaltap set diff`."""

GROUPS = {
    "start": {
        "try": "read files of any supported format and show what the agent did",
        "demo": "record a small agent, score it and explain the result",
        "init": "write evaltap.toml and starter files of metrics and watches",
        "up": "receive OTLP, land, score and show results, in one process",
    },
    "record": {
        "record": "create eval cases from telemetry, transcripts or files",
        "collect": "receive OTLP over HTTP and record its agent runs",
        "redact": "list what would leak from files, or write redacted copies",
        "convert": "create eval cases from the data sets of other tools",
    },
    "run": {
        "run": "run an agent on the cases of an eval set, and score it",
        "replay": "run a changed agent on recorded traffic; forecast its pass rate",
        "serve": "run and score an agent on eval sets when HTTP requests ask for it",
        "mocks": "offer recorded tools to agents in any language",
    },
    "score": {
        "consume": "land the cases of a log in a DuckDB file and score them",
        "score": "score eval cases from files or a DuckDB file",
        "metrics": "list the evaluators, with an example of each",
        "compare": "show what changed between two runs, and whether it is worse",
        "gate": "check eval cases against thresholds in several dimensions",
        "calibrate": "compare a judge's verdicts with human labels",
        "attack": "measure how many prompt injections deceive a judge",
    },
    "inspect": {
        "ui": "explore cases, verdicts and runs in the browser",
        "cases": "list the landed cases that match a filter",
        "report": "summarise scores on screen, or as HTML, Markdown, JUnit or JSON",
        "show": "show one case with its scores and reasons",
        "why": "explain why a case was not scored",
        "runs": "list the scoring runs of a DuckDB file",
        "estimate": "estimate the pass rate of all traffic, with intervals",
        "monitor": "find when live traffic got worse, and which slice of it changed",
        "sql": "query the store in SQL, even while a consumer writes to it",
        "mcp": "let a coding agent ask a store, over the Model Context Protocol",
        "skill": "teach a coding agent to work with evaltap",
    },
    "curate": {
        "curate": "create or update an eval set from landed cases",
        "review": "let people approve, edit or reject landed turns",
        "set": f"work with eval sets: {', '.join(FAMILIES['set'])}",
    },
    "maintain": {
        "doctor": "account for every turn, and check the environment",
        "store": f"maintain a DuckDB file: {', '.join(FAMILIES['store'])}",
        "completion": "print a shell completion script",
    },
}
"""What the commands do, by group, in the order of the help."""
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}

_WITHOUT_SETTINGS = ("demo", "init", "metrics", "try")

_NO_WARNINGS = ("", "completion", "doctor")
"""Commands that read no variable, or that report unknown ones themselves."""

_MODULES = {
    "collect": "google opentelemetry starlette uvicorn",
    "evaluator": "anyio duckdb genai_prices greenlet jinja2 jsonschema jsonschema_specifications markupsafe"
    " msgspec nanoarrow nltk numpy re2 referencing rich shtab",
    "kafka": "google_crc32c kafka",
    "kafka-fast": "confluent_kafka",
    "mcp": "mcp mcp_types",
    "otlp": "opentelemetry.exporter requests",
    "s3": "fsspec obstore",
}
EXTRAS = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}
"""The extra that installs a module, for modules that a command may find missing."""

_EXAMPLES = """\
examples:
  evaltap try traces.json      # what is in a file of traces or sessions
  evaltap demo                 # a recorded agent, its scores and what failed
  evaltap init                 # settings for this folder
  evaltap consume --help       # examples and options of a command
"""
_EXIT_CODES = (
    "exit code: 0 passed or done, 1 quality below the bar, 2 bad input, 3 incomplete (no verdict)"
)


def every_command() -> dict[str, str]:
    """Return what each command does by its name, of one word or two."""
    return {
        f"{name} {member}".rstrip(): summary
        for name, text in COMMANDS.items()
        for member, summary in FAMILIES.get(name, {"": text}).items()
    }


def build_parser(command: str | None = None) -> CommandParser:
    """Return the parser of `command` alone, of all with their options if None, without if empty."""
    parser = CommandParser(
        prog="evaltap",
        usage="evaltap [-h] [--version] COMMAND ...",
        description="Record LLM-agent traffic as eval cases and score them offline.",
        epilog=_listed(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="store_true", dest="of_evaltap", help="print the version and exit"
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", prog="evaltap", help=argparse.SUPPRESS
    )
    for name in (command.partition(" ")[0],) if command else COMMANDS:
        child = commands.add_parser(name, **described(COMMANDS[name]))
        if command == "":
            continue
        if name not in FAMILIES:
            _declare(child, name, next(group for group, names in GROUPS.items() if name in names))
            continue
        child.epilog = f"example: evaltap {name} {next(iter(FAMILIES[name]))} --help"
        members = child.add_subparsers(metavar="COMMAND", prog=child.prog, required=True)
        for member, text in FAMILIES[name].items():
            grandchild = members.add_parser(member, **described(text))
            grandchild.set_defaults(command=member)  # its module
            if command is None or command == f"{name} {member}":
                _declare(grandchild, member, name)
    return parser


def _declare(parser: CommandParser, command: str, module: str) -> None:
    """Give the parser of a command its options, which a module in `options/` declares."""
    declarations = importlib.import_module(f"evaltap.cli.options.{module}")
    kind: Kind = getattr(declarations, f"{command.capitalize()}Options")
    configure(parser, kind)
    if "exit code" not in (parser.epilog or ""):
        parser.epilog = f"{parser.epilog}\n\nexit code: 0 done, 2 bad input"


def named(words: Sequence[str]) -> str:
    """Return the name of the command in a command line: `score`, `set diff`, or "" if there is none."""
    first, second = [*(word for word in words if not word.startswith("-")), "", ""][:2]
    return f"{first} {second}".rstrip() if first in FAMILIES else first


def _listed() -> str:
    """Return examples, the commands by group, and the exit codes."""
    lines = [_EXAMPLES]
    for group, names in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<11} {text}" for name, text in names.items()), ""]
    return "\n".join([*lines, _EXIT_CODES])


def _installing(extra: str) -> str:
    """Return the command that installs an extra."""
    from evaltap.schemas.installation import install_command  # only for messages

    return install_command(extra)


def _kafka_trouble(error: Exception) -> EvaltapError | None:
    """Explain an error of the Kafka client to the user; return None for any other error."""
    if type(error).__module__ != "kafka.errors":
        return None
    if type(error).__name__ == "UnsupportedCodecError":
        return EvaltapError(
            f"cannot decompress the topic's records ({error}); install the codec"
            f" ({_installing('zstd')}, or python-snappy or lz4) and start again; no record was skipped"
        )
    if getattr(error, "retriable", False):
        return EvaltapError(
            f"the Kafka brokers do not respond properly ({error}); start again when they do; records that"
            " were read but not landed are read again"
        )
    return EvaltapError(
        f"the Kafka broker refused the request ({error}); check the user's permissions on topics and"
        " groups, and the EVALTAP_KAFKA_... settings; records that were read but not landed are read again"
    )


def _store_trouble(error: Exception) -> EvaltapError | None:
    """Explain an error of DuckDB to the user; return None for any other error.

    The store reports disk and memory problems itself. The remaining errors come from files that look like
    evaltap's but are not.
    """
    if type(error).__module__ not in ("duckdb", "_duckdb"):
        return None
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if "Permission denied" in first:
        return InputError(
            f"the DuckDB file cannot be written ({first}); make the file and its folder writable"
        )
    return InputError(
        f"evaltap did not write this DuckDB file ({first}); name another file, or consume the log into"
        " a new one"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake prints a message, never a traceback."""
    if argv is None:
        atexit.register(gc.freeze)  # a process that ends need not search all it has for garbage
    before = os.umask(0o077)  # the files of a command contain conversations
    try:
        with visible_output():
            return _run(list(sys.argv[1:] if argv is None else argv))
    finally:
        os.umask(before)


def _run(arguments: Sequence[str]) -> int:
    command = named(arguments)
    for argument in arguments:
        if _undecodable(argument) and not os.path.exists(argument):
            say(command, f"{argument!r} is not UTF-8; give text and file names in UTF-8")
            return 2
    if command not in _NO_WARNINGS:
        _warn_of_unknown_variables()
    try:
        with nullcontext() if command in ("", *_WITHOUT_SETTINGS) else settings_in_effect():
            return _run_command(arguments, command)
    except ConfigurationError as error:  # from the settings
        say(command, error)
        return error.exit_code


def _undecodable(argument: str) -> bool:
    """Return whether an argument has bytes that are not in the encoding of the terminal."""
    return any("\udc80" <= one <= "\udcff" for one in argument)


def _warn_of_unknown_variables() -> None:
    if names := [name for name in os.environ if name.startswith("EVALTAP_")]:
        from evaltap.recorder.config import warn_of_unknown_variables  # compiles all patterns

        warn_of_unknown_variables(names)


def _refuse_member(command: str) -> None:
    """Raise ConfigurationError for a command that is only known within a family."""
    for family, members in FAMILIES.items():
        if command in members and command not in COMMANDS:
            raise ConfigurationError(f"unknown command; did you mean `evaltap {family} {command}`?")


def _missing_extra(error: ModuleNotFoundError, command: str) -> str | None:
    """Return which extra to install; None if the module belongs to none."""
    name = error.name or ""
    extra = EXTRAS.get(name) or EXTRAS.get(name.partition(".")[0])
    if extra is None:
        return None
    if command == "demo":
        extra = "demo"
    return (
        f"the extra '{extra}' is not installed (no module {error.name});"
        f" install it with {_installing(extra)}"
    )


def _run_command(arguments: Sequence[str], command: str) -> int:
    try:
        _refuse_member(command)
        with interrupted_afterwards(), never_collecting():
            known = command.partition(" ")[0] in COMMANDS
            parser = build_parser(command if known else "")
            namespace = parser.parse_command(arguments)
            if namespace.of_evaltap:
                from importlib.metadata import version

                print(f"evaltap {version('evaltap')}")
                return 0
            if namespace.command is None:
                parser.print_help()
                return 2
            options = options_of(namespace.options, vars(namespace))
            module = importlib.import_module(f"evaltap.cli.commands.{namespace.command}")
        code = int(module.run(options))
        sys.stdout.flush()  # here an error becomes a message
        return code
    except EvaltapError as error:
        say(command, error)
        return error.exit_code
    except ModuleNotFoundError as error:
        if (missing := _missing_extra(error, command)) is None:
            raise
        say(command, missing)
        return 2
    except KeyboardInterrupt as error:
        detail = f"; {error}" if str(error) else ""
        say(command, f"interrupted{detail}")
        return 130
    except PermissionError as error:
        if error.filename is None:
            raise
        say(
            command,
            f"{error.filename}: not accessible to this user ({error.strerror}); check the"
            " permissions of its folders",
        )
        return 2
    except Exception as error:
        if str(error) == "Query interrupted":  # DuckDB's name for KeyboardInterrupt
            say(command, "interrupted")
            return 130
        # Recognised by module name: most commands load neither library.
        trouble = _kafka_trouble(error) or _store_trouble(error)
        if trouble is None:
            raise
        say(command, trouble)
        return trouble.exit_code
