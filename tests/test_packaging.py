"""The rules of the house: rooms that do not know each other, a light recorder, an exact public list."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("schemas", "recorder", "evaluator")
MAY_IMPORT = {
    "schemas": {"schemas"},
    "recorder": {"schemas", "recorder"},
    "evaluator": {"schemas", "evaluator"},
}
MOUNTS_BOTH = ROOT / "evaluator/evaltap/evaluator/commands"
"""The command line is the one place where both rooms meet, inside functions."""


def sources(room: str) -> list[Path]:
    return sorted((ROOT / room / "evaltap" / room).rglob("*.py"))


def imported_rooms(tree: ast.AST) -> set[str]:
    """Return the rooms that a piece of code imports."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += (
                [node.module]
                if node.module != "evaltap"
                else [f"evaltap.{a.name}" for a in node.names]
            )
    return {name.split(".")[1] for name in names if name.startswith("evaltap.")}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    for path in sources(room):
        tree = ast.parse(path.read_text())
        if MOUNTS_BOTH in path.parents:
            at_the_top = ast.Module(
                [
                    node
                    for node in tree.body
                    if not isinstance(node, ast.FunctionDef | ast.ClassDef)
                ],
                [],
            )
            tree = at_the_top
        assert imported_rooms(tree) <= MAY_IMPORT[room], path


def test_the_namespace_has_no_init_file_and_each_room_is_typed() -> None:
    for room in ROOMS:
        assert not (ROOT / room / "evaltap/__init__.py").exists()
        assert (ROOT / room / "evaltap" / room / "py.typed").exists()


@pytest.mark.parametrize("room", ROOMS)
def test_the_public_list_is_sorted_and_every_name_of_it_resolves(room: str) -> None:
    module = import_module(f"evaltap.{room}")

    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        public = getattr(module, name)
        # A type alias cannot carry a docstring; the text below it in the source is its own.
        assert public.__doc__ or not isinstance(public, type), name


@pytest.mark.parametrize("room", ["schemas", "evaluator"])
def test_importing_a_room_loads_none_of_its_heavy_libraries(room: str) -> None:
    heavy = {"pydantic", "duckdb", "openai", "rich", "re2", "nltk", "jsonschema", "kafka"}
    program = f"import sys, evaltap.{room}; print(*sorted({heavy!r} & set(sys.modules)))"

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout.split() == []


def test_help_loads_no_heavy_library() -> None:
    heavy = {"duckdb", "openai", "rich", "google", "opentelemetry"}
    program = (
        "import sys\nfrom evaltap.evaluator.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        f"print('HEAVY', *sorted({heavy!r} & set(sys.modules)))"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout.splitlines()[-1] == "HEAVY"


def test_every_extra_that_is_named_somewhere_exists() -> None:
    """An installer only warns about an extra it does not know, then leaves its packages out."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = stated["project"]["optional-dependencies"]
    lists = [*extras.values(), *stated["dependency-groups"].values()]
    named = {
        extra
        for requirement in (line for lines in lists for line in lines)
        for match in re.findall(r"^evaltap\[(.*?)\]", requirement)
        for extra in match.split(",")
    }
    assert named
    assert named <= set(extras)
