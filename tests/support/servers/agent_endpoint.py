"""An HTTP endpoint that a test scripts, as the agent of an experiment."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.servers import quiet_http
from support.servers.quiet_http import Handler

JSON = "application/json"
Answer = Callable[[dict[str, Any], Any], tuple[int, str, str]]
"""From a request's body and headers to status, content type and body."""


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Serve an endpoint; yield its address."""

    class Endpoint(Handler):
        def do_POST(self) -> None:
            body = json.loads(self.body())
            status, kind, reply = answer({"path": self.path, **body}, self.headers)
            more = {429: {"Retry_After": "0"}, 302: {"Location": "/elsewhere"}}.get(status, {})
            self.reply(status, reply.encode(), Content_Type=kind, **more)

    with quiet_http.serving(Endpoint) as url:
        yield url
