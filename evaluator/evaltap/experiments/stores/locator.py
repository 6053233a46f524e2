"""Where the files of a store are: `<base>/<app>/<id><suffix>`, as tRPC-Agent-Go has it.

An id is one segment of a path: one that would leave its folder or make another is refused.
"""

import os
import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from evaltap.evaluator.scoring.results.result_file import LONGEST_NAME
from evaltap.schemas.errors import InputError


class Locator(Protocol):
    """Finds the files of a store; called for every operation, from any thread."""

    def build(self, base: str, app: str, name: str) -> str:
        """Return the path of a document; raise InputError for a name that no path can hold."""
        ...

    def list(self, base: str, app: str) -> list[str]:
        """Return the ids of an app in byte order; none if it has no folder."""
        ...


@dataclass(frozen=True, slots=True)
class FileLocator:
    """The peer's layout with another suffix, if need be."""

    suffix: str

    def build(self, base: str, app: str, name: str) -> str:
        """Return the path of a document, cleaned."""
        _check("app name", app)
        _check("id", name, self.suffix)
        return posixpath.normpath(posixpath.join(base, app, f"{name}{self.suffix}"))

    def list(self, base: str, app: str) -> list[str]:
        """Return the ids of the plain files with the suffix; letter case counts."""
        _check("app name", app)
        try:
            with os.scandir(Path(base, app)) as entries:
                names = [one.name for one in entries if one.is_file()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"{Path(base, app)}: cannot be listed ({error.strerror})") from None
        found = [one.removesuffix(self.suffix) for one in names if one.endswith(self.suffix)]
        return sorted(found, key=os.fsencode)


EVAL_SET_FILES: Final = FileLocator(".evalset.json")
METRICS_FILES: Final = FileLocator(".metrics.json")
RESULT_FILES: Final = FileLocator(".evalset_result.json")


def _check(what: str, name: str, suffix: str = "") -> None:
    if name in (".", "..") or any(one in "/\\" or ord(one) < 32 or ord(one) == 127 for one in name):
        raise InputError(f"{what} {name!r} cannot be part of a path; leave out / \\ and ..")
    if len(f"{name}{suffix}".encode("utf-8", "surrogatepass")) > LONGEST_NAME:
        raise InputError(
            f"{what} {name[:40]!r}… is too long for a file name; {LONGEST_NAME} bytes fit"
        )
