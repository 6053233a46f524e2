"""Run commands of evaltap without the modules and calls of Unix that Windows lacks.

python tests/support/programs/without_unix.py ARGUMENTS [-- ARGUMENTS]...

All else is the system that it runs on: this shows that nothing needs them, not that evaltap works on Windows.
Prints the exit code of each command.
"""

import os
import select
import signal
import socket
import sys
from importlib.abc import MetaPathFinder
from typing import Any

_MODULES = {"fcntl", "grp", "pwd", "readline", "resource", "syslog", "termios", "tty"}
_CALLS: dict[Any, str] = {
    os: "fchmod fork getuid geteuid killpg register_at_fork sched_getaffinity setsid sysconf wait4",
    select: "epoll poll",
    signal: "SIGHUP SIGKILL SIGUSR1 pthread_kill pthread_sigmask setitimer",
    socket: "AF_UNIX",
}


class Missing(MetaPathFinder):
    """Finds nothing for the modules of Unix."""

    def find_spec(self, name: str, *_: object) -> None:
        """Raise the error of an import on Windows."""
        if name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _without_unix() -> None:
    sys.meta_path.insert(0, Missing())
    for name in _MODULES:
        sys.modules.pop(name, None)
    for module, calls in _CALLS.items():
        for call in calls.split():
            delattr(module, call)


if __name__ == "__main__":
    _without_unix()
    from evaltap.cli.main import main

    given: list[str] = []
    for argument in [*sys.argv[1:], "--"]:
        if argument != "--":
            given.append(argument)
            continue
        print("exit code", main(given), flush=True)
        given = []
