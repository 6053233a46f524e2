"""`evaltap replay`: run a changed agent on recorded traffic, and forecast its pass rate."""

import shlex
import sys
from dataclasses import replace

from evaltap.cli.experimenting import ProgressLines, quiet_engine, request_of, scorer_of, starter_of
from evaltap.cli.messages import print_json, say
from evaltap.cli.options.run import ReplayOptions
from evaltap.cli.scoring import judge_session
from evaltap.cli.stores import choice_of, open_stores
from evaltap.evaluator.analysis.forecast.model import Options
from evaltap.evaluator.analysis.summaries.summaries import catch_up
from evaltap.evaluator.store.database import Store
from evaltap.experiments.replay.html import replay_html
from evaltap.experiments.replay.recorded import outcome_terms
from evaltap.experiments.replay.replaying import Drawn, digests_of, draw, possible, replay
from evaltap.experiments.replay.report import print_replay, replay_markdown
from evaltap.experiments.running import Request
from evaltap.experiments.tool_calls import Mode
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import write_bytes
from evaltap.schemas.text import counted


def run(options: ReplayOptions) -> int:
    """Replay, print the forecast, and return the exit code."""
    choice = choice_of(options.chosen)
    by_outcome = bool(outcome_terms(choice.filter) or choice.where)
    into = options.db or options.store.with_name(f"{options.store.stem}.replay.duckdb")
    with judge_session("replay", options.judges) as judges, open_stores([options.store]) as store:
        scorer = scorer_of("replay", options, judges)
        catch_up(store)
        drawn = draw(store, choice, digests_of(scorer), options.sample)
        request = _request(options, drawn)
        drawn = possible(drawn, request)
        request = replace(request, cases=drawn.cases)
        if not drawn.cases.cases:
            why = next(iter(drawn.lost.values()))
            raise InputError(f"{options.store}: none of the sessions can be replayed: {why}")
        judges.check_reachable(scorer.metrics)
        say("replay", f"{_of(drawn)}; {request.tools.told(drawn.cases.cases, request.agent)}")
        with Store(into) as new, quiet_engine(options.agent):
            found, finished = replay(
                store,
                drawn,
                request,
                scorer,
                new,
                Options(options.max_drop, chosen_by_outcome=by_outcome),
                report=ProgressLines().report,
                start=starter_of(options.agent),
            )
            if options.html is not None:
                page = replay_html(found, new, finished.plan.experiment_id)
                write_bytes(options.html, page.encode("utf-8", "replace"))
                say("replay", f"wrote {options.html}")
    stopped = finished.progress.stopped_by
    code = 3 if stopped else found.exit_code
    if options.markdown is not None:
        options.markdown.write_text(replay_markdown(found), encoding="utf-8")
        say("replay", f"wrote {options.markdown}")
    if options.json:
        more = {"run_id": finished.plan.experiment_id, "stopped_by": stopped, "exit_code": code}
        print_json({**found.data(), **more})
        return code
    print_replay(found)
    if stopped:
        again = shlex.join(
            ["evaltap", "replay", *sys.argv[2:], *([] if options.resume else ["--resume"])]
        )
        print(f"stopped ({stopped}), so that the rest counts as not replayed; go on with: {again}")
    return code


def _request(options: ReplayOptions, drawn: Drawn) -> Request:
    request = request_of(options, drawn.cases, replays=True)
    if options.tools.mocks not in ("auto", "recorded"):
        raise InputError(
            f"--mocks {options.tools.mocks}: a replay is answered by the recording; use `evaltap run`"
        )
    stops = options.after_fork == "stop"
    has_calls = any(turn for one in drawn.cases.cases for turn in one.recording)
    mode: Mode = "recorded" if has_calls else "auto"
    return replace(request, tools=replace(request.tools, mode=mode, stop_off_script=stops))


def _of(drawn: Drawn) -> str:
    cases, sessions = len(drawn.cases.cases), len(drawn.sessions)
    of = "" if cases == sessions else f" of {sessions:,}"
    return f"{counted(cases, 'recorded session')}{of}"
