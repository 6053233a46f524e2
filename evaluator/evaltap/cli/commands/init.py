"""`evaltap init`: write evaltap.toml, and a starter file each of metrics and of watches."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from evaltap.cli.logs import open_source
from evaltap.cli.messages import print_json
from evaltap.cli.options.start import InitOptions
from evaltap.cli.values import share
from evaltap.evaluator.curation.starter_metrics import FEWEST, Observed, observed, starter_metrics
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.monitoring.rules import read_rules
from evaltap.evaluator.store.database import open_store
from evaltap.schemas.errors import EvaltapError, InputError
from evaltap.schemas.files.content import write_bytes
from evaltap.schemas.files.documents import read_metrics
from evaltap.schemas.files.settings import FILE_NAME
from evaltap.schemas.log.location import FORM, OTLP, KafkaLocation, parse_log_location
from evaltap.schemas.text import counted

T = TypeVar("T")

_MOST_RECORDS = 20_000
"""Number of records that are read from the log, oldest first."""


def run(options: InitOptions) -> int:
    """Ask for missing settings, write the files and print the next steps."""
    file = Path(FILE_NAME)
    if file.exists() and not options.force:
        raise InputError(f"{file} already exists; edit it, or overwrite it with --force")
    if options.store.suffix != ".duckdb" or options.store.is_dir():
        raise InputError(f"--store {options.store}: expected a file that ends in .duckdb")
    chosen = _answered(options)
    found = _observed(chosen.log or "")
    written = [file]
    model = chosen.judge_model or ""
    if chosen.metrics.exists():
        read_metrics(chosen.metrics)
    else:
        rows = ",\n".join("  " + json.dumps(one) for one in starter_metrics(found, model))
        write_bytes(chosen.metrics, f"[\n{rows}\n]\n".encode())
        written.append(chosen.metrics)
    if chosen.monitor.exists():
        read_rules(chosen.monitor)
    else:
        judged = bool(model) and chosen.metrics in written
        write_bytes(chosen.monitor, _watches_text(judged=judged).encode())
        written.append(chosen.monitor)
    write_bytes(file, _settings_text(chosen).encode())
    if options.json:
        print_json({"written": [str(path) for path in written], "turns": found.turns})
    else:
        _print_next(chosen, written, found)
    return 0


def _answered(options: InitOptions) -> InitOptions:
    asks = sys.stdin.isatty() and not (options.yes or options.json)
    log, rate, model = options.log, options.sample_rate, options.judge_model
    if log is None:
        question = "Where does the agent record to? A file, or kafka://host:port/topic"
        log = _ask(asks, question, "agent.log.db", _log)
    if rate is None:
        rate = _ask(asks, "What share of sessions should be recorded?", "1", share)
    if model is None:
        question = "Which model should judge answers? Leave empty for no judge"
        model = _ask(asks, question, "", str)
    return replace(options, log=_log(log), sample_rate=rate, judge_model=model)


def _ask(asks: bool, question: str, default: str, read: Callable[[str], T]) -> T:
    """Return the user's answer or the default; ask again after an invalid answer."""
    while asks:
        shown = f" [{default}]" if default else ""
        print(f"{question}{shown}: ", end="", file=sys.stderr, flush=True)
        try:
            return read(sys.stdin.readline().strip() or default)
        except (argparse.ArgumentTypeError, EvaltapError) as error:
            print(error, file=sys.stderr)
    return read(default)


def _log(text: str) -> str:
    location = parse_log_location(text)
    if isinstance(location, Path) and (not text or location.is_dir()):
        raise InputError(f"log {text!r}: expected a file, or {FORM}")
    return text


def _observed(log: str) -> Observed:
    """Return observations of a local log; empty if it does not exist yet, or for topics."""
    if isinstance(parse_log_location(log), KafkaLocation) or not Path(log).is_file():
        return Observed()
    source = open_source(log, until_idle=True)
    try:
        with open_store(None) as store:
            lander, seen = Lander(store), 0
            while seen < _MOST_RECORDS:
                batch = source.poll(5_000, 0)
                if not batch.records and not batch.more:
                    break
                seen += lander.land(batch).records
            return observed(store)
    finally:
        source.close()


_WATCHES: list[dict[str, object]] = [
    {"name": "tool errors", "signal": "tool_error_rate", "above": 0.1, "hours": 1},
    {"name": "failing", "signal": "error_rate", "smallestChange": 0.02},
    {"name": "slow", "signal": "slow_rate"},
]


def _watches_text(*, judged: bool) -> str:
    answers = {"name": "answers", "signal": "pass_rate", "metric": "llm_rubric_response"}
    watches = [*_WATCHES, answers] if judged else _WATCHES
    lines = ",\n".join("    " + json.dumps(watch) for watch in watches)
    return f'{{\n  "watch": [\n{lines}\n  ]\n}}\n'


def _settings_text(chosen: InitOptions) -> str:
    judge = chosen.judge_model or ""
    return (
        Path(__file__)
        .with_name("evaltap.toml.txt")
        .read_text("utf-8")
        .format(
            log=json.dumps(chosen.log),
            store=json.dumps(str(chosen.store)),
            metrics=json.dumps(str(chosen.metrics)),
            monitor=json.dumps(str(chosen.monitor)),
            sample_rate=chosen.sample_rate,
            model=f"model = {json.dumps(judge)}" if judge else '# model = "gpt-4o-mini"',
        )
    )


def _print_next(chosen: InitOptions, written: list[Path], found: Observed) -> None:
    location = parse_log_location(chosen.log or "")
    for path in written:
        print(f"wrote {path}")
    for path in (chosen.metrics, chosen.monitor):
        if path not in written:
            print(f"kept the existing {path}")
    if chosen.metrics in written:
        print(_limits(chosen, location, found))
    if not (isinstance(location, KafkaLocation) and location.format == OTLP):
        print(
            "\nrecord:\n  from evaltap.recorder import Recorder\n"
            f"  recorder = Recorder({chosen.log!r})     # or EVALTAP_CONFIG={FILE_NAME} and Recorder()",
            end="",
        )
    print(
        "\nland and score:\n  evaltap consume --until-idle            # without --until-idle: keeps"
        " following live traffic\ninspect:\n  evaltap cases\n  evaltap report"
    )


def _limits(chosen: InitOptions, location: Path | KafkaLocation, found: Observed) -> str:
    if found.turns >= FEWEST:
        return (
            f"the limits in {chosen.metrics} fit the {counted(found.turns, 'turn')} in {chosen.log}"
        )
    none = f"{chosen.metrics} sets no limits on time, cost or calls"
    if isinstance(location, KafkaLocation):
        return f"{none}, because `evaltap init` does not read topics"
    return (
        f"{none} yet; once {FEWEST} turns are recorded ({found.turns} so far), delete it and run"
        " `evaltap init --force` for some that fit"
    )
