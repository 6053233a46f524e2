"""The OTLP receiver in a process: bound first, served from any thread, shut down in order."""

import os
import ssl
import threading
from typing import Final

import uvicorn

from evaltap.cli.listening import listening
from evaltap.cli.messages import say
from evaltap.recorder import Recorder
from evaltap.recorder.config import check_variables
from evaltap.recorder.sources.collector import CollectorAccess, application
from evaltap.recorder.sources.connections import connection_settings
from evaltap.schemas.text import counted

MOST_CONNECTIONS: Final = 500
GRACE_SECONDS: Final = 1
"""Time for active requests to finish at shutdown; after that they are cut off and sent again."""
_RECORDER_SECONDS: Final = 7.0
"""Time to write what was accepted: twice what `CollectorLimits` lets wait; with the grace below ten."""


def receiver_server(
    recorder: Recorder, access: CollectorAccess, tls: ssl.SSLContext | None
) -> uvicorn.Server:
    """Return the server that records what it receives."""
    config = uvicorn.Config(
        application(recorder, access=access),
        # Its own configuration would close the handlers of all other loggers.
        log_config=None,
        log_level="error",
        lifespan="off",
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        **connection_settings(MOST_CONNECTIONS, tls),
    )
    config.load()
    return uvicorn.Server(config)


def close_recorder(command: str, recorder: Recorder) -> bool:
    """Write open turns and report the counts; return True when every turn is on the log."""
    complete = recorder.close(timeout_seconds=_RECORDER_SECONDS)
    counters = recorder.counters()
    say(
        command,
        f"{counted(counters.recorded, 'turn')} recorded, {counters.delivered:,} on the"
        f" log, {sum(counters.dropped.values()):,} dropped",
    )
    return complete


class Receiver:
    """Receives OTLP from this machine on a separate thread, until it is closed."""

    def __init__(self, command: str, log: str, port: int) -> None:
        self._command = command
        check_variables(os.environ)
        self._listener = listening("127.0.0.1", port)
        self.port: int = self._listener.getsockname()[1]
        self._recorder = Recorder(log)
        self._server = receiver_server(self._recorder, CollectorAccess(local=True), None)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), name="evaltap-receiver", daemon=True
        )
        self._thread.start()
        self._lock = threading.Lock()
        self._complete: bool | None = None

    def close(self) -> bool:
        """Finish the active requests and write all turns; return True when all are on the log."""
        with self._lock:
            if self._complete is None:
                self._server.should_exit = True
                self._thread.join(GRACE_SECONDS + 2)
                self._listener.close()
                self._complete = close_recorder(self._command, self._recorder)
            return self._complete
