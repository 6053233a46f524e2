"""`evaltap serve`: run and score an agent on eval sets when HTTP requests ask for it."""

import json
import os
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from evaltap.cli.experimenting import request_template
from evaltap.cli.listening import listening, tls_context
from evaltap.cli.messages import say
from evaltap.cli.options.run import ServeOptions
from evaltap.cli.signals import stopped_by_signals
from evaltap.evaluator.page.security.site import Site, is_loopback
from evaltap.evaluator.page.serving import MOST_CONNECTIONS, PageServer
from evaltap.evaluator.scoring.settings import check_code
from evaltap.experiments.server.adk import adk_routes
from evaltap.experiments.server.app import ServerStores, create_app
from evaltap.experiments.server.entrance import Entrance
from evaltap.experiments.server.remote import agent_routes
from evaltap.experiments.service.evaluator import AgentEvaluator
from evaltap.experiments.service.recorded import RecordedAgent
from evaltap.experiments.service.simulation import UserSimulator
from evaltap.experiments.stores import SharedMetrics, Stores, stores_at
from evaltap.experiments.stores.databases import is_database
from evaltap.recorder.sources.connections import connection_settings
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import read_metrics

TOKEN: Final = "EVALTAP_SERVE_TOKEN"
_SHORTEST_TOKEN: Final = 16


def run(options: ServeOptions) -> int:
    """Serve until a signal stops it."""
    token = _token(options)
    _check(options)
    app_name, stores = _stores(options)
    tls = tls_context(options.tls)
    with ExitStack() as closing:
        called = options.agent
        template, result = request_template(called), called.agent_result
        tested = _closed(closing, RecordedAgent(called.agent, request=template, result=result))
        evaluator = _evaluator(options, app_name, tested, stores, closing)
        listener = listening(options.host, options.port)
        port = listener.getsockname()[1]
        scheme = "https" if options.tls.tls_cert else "http"
        names = frozenset(one.lower() for one in options.allow_host)
        site = Site(options.host, port, "", names, scheme)
        app = create_app(
            evaluator,
            ServerStores(sets=stores.sets, metrics=stores.metrics, results=stores.results),
            Entrance(site, token, options.allow_origin),
            run_seconds=options.run_seconds,
            at_once=options.runs_at_once,
            allow_code=options.allow_code,
            more=lambda api: [
                *adk_routes(api, stores),
                *agent_routes(app_name, tested, options.agent.turn_seconds),
            ],
        )
        settings = connection_settings(MOST_CONNECTIONS, tls)
        server = PageServer(app, listener, when_ending=app.state.cancel, **settings)
        with stopped_by_signals("serve", server.stop):
            _print(options, site.address, app_name, token)
            server.run()
    return 0


def _token(options: ServeOptions) -> str:
    given = os.environ.get(TOKEN, "").strip()
    if not options.token:
        if not is_loopback(options.host) or "*" in options.allow_origin:
            raise InputError(
                "--no-token: anyone could run the agent; leave out --host and --allow-origin '*', or keep the"
                " token"
            )
        return ""
    if given and len(given) < _SHORTEST_TOKEN:
        raise InputError(
            f"{TOKEN}: expected {_SHORTEST_TOKEN} or more characters, found {len(given)}; make one with"
            " `openssl rand -hex 32`"
        )
    return given or secrets.token_urlsafe(24)


def _check(options: ServeOptions) -> None:
    """Raise InputError for options that would let strangers read what is sent."""
    if is_loopback(options.host) or options.insecure_http or options.tls.tls_cert:
        return
    raise InputError(
        f"--host {options.host}: other machines could read what is sent; add --tls-cert and --tls-key, or"
        " --insecure-http on a network that you trust"
    )


def _stores(options: ServeOptions) -> tuple[str, Stores]:
    app_name, where = options.app.strip(), options.sets
    if is_database(where):
        if not app_name:
            raise InputError(
                "--sets: a database holds the sets of many apps; name yours with --app"
            )
    else:
        folder = Path(where).resolve()
        if not folder.is_dir():
            raise InputError(
                f"--sets {where}: no such folder; expected one with .evalset.json files"
            )
        if not app_name:
            app_name, where = folder.name, str(folder.parent)
        elif not (folder / app_name).is_dir():
            raise InputError(
                f"--sets {where}: has no folder {app_name!r}; without --app, the folder itself has the sets"
            )
    stores = stores_at(where)
    if options.metrics is None:
        return app_name, stores
    metrics = read_metrics(options.metrics)
    check_code(metrics, options.metrics, allowed=options.allow_code)
    return app_name, stores._replace(metrics=SharedMetrics(metrics, str(options.metrics)))


def _evaluator(
    options: ServeOptions, app_name: str, tested: RecordedAgent, stores: Stores, closing: ExitStack
) -> AgentEvaluator:
    expected, user = options.expected_agent, options.user_agent
    return AgentEvaluator(
        app_name,
        tested,
        stores=stores,
        expected_runner=_closed(closing, RecordedAgent(expected)) if expected else None,
        simulator=UserSimulator(_closed(closing, RecordedAgent(user))) if user else None,
        num_runs=options.runs,
        parallel_inference=True,
        parallel_evaluation=True,
        parallelism=options.agent.concurrency,
        turn_seconds=options.agent.turn_seconds,
    )


def _closed(closing: ExitStack, agent: RecordedAgent) -> RecordedAgent:
    closing.callback(agent.close)
    return agent


def _print(options: ServeOptions, address: str, app_name: str, token: str) -> None:
    url = f"{address}/evaluation"
    made = bool(token) and not os.environ.get(TOKEN, "").strip()
    if options.json:
        data = {"url": url, "app": app_name, **({"token": token} if made else {})}
        print(json.dumps(data), flush=True)
    else:
        print(f"evaltap serve: {url} (app {app_name})", flush=True)
        if made:
            print(f"evaltap serve: token {token}", flush=True)
    if not token:
        say("serve", "--no-token: any program on this machine can run the agent")
    if options.insecure_http and not is_loopback(options.host):
        say("serve", "--insecure-http: anyone on this network can read what is sent")
