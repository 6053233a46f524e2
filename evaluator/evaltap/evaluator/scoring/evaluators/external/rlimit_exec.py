"""Set limits on this process, then replace it with another program.

`python -I -S rlimit_exec.py MEMORY_BYTES SECONDS PROGRAM ARGUMENT…`; it does not import evaltap, so that
it starts quickly.
"""

import os
import resource
import signal
import sys


def main() -> None:
    """Limit memory, time and core files, then run the program in this process."""
    memory, seconds = int(sys.argv[1]), int(sys.argv[2])
    # RLIMIT_DATA counts the memory that a process uses on Linux only.  RLIMIT_AS would also count the
    # gigabytes of address space that Node, Go and Java only reserve, and macOS refuses it.
    if memory and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(seconds)  # for a caller that was killed and cannot stop it
    try:
        os.execvp(sys.argv[3], sys.argv[3:])
    except OSError as error:
        print(f"{sys.argv[3]}: {error.strerror}", file=sys.stderr)
        raise SystemExit(127) from None


if __name__ == "__main__":
    main()
