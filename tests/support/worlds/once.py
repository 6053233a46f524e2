"""A world that many tests ask for is made once in a process; each test gets a copy of its files."""

import shutil
import tempfile
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, Protocol

P = ParamSpec("P")


class Maker(Protocol[P]):
    """Makes a DuckDB file and its log in a folder, and returns the file."""

    def __call__(self, folder: Path, *args: P.args, **kwargs: P.kwargs) -> Path: ...


def made_once(make: Maker[P]) -> Maker[P]:
    """Make each file once in this process; arguments are those that `repr` tells apart."""
    made: dict[str, Path] = {}

    @wraps(make)
    def copied(folder: Path, *args: P.args, **kwargs: P.kwargs) -> Path:
        if any(folder.glob("*db")):
            return make(folder, *args, **kwargs)  # goes on with the files there
        key = repr((args, kwargs))
        if key not in made:
            made[key] = make(Path(tempfile.mkdtemp(dir=_home().name)), *args, **kwargs)
        shutil.copytree(made[key].parent, folder, dirs_exist_ok=True)
        return folder / made[key].name

    return copied


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of all worlds, which goes with the process."""
    return tempfile.TemporaryDirectory(prefix="evaltap-worlds-")
