"""The packaging: typed parts without a parent `__init__`, light imports, an exact public surface."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from evaltap.cli.main import EXTRAS, every_command

ROOT = Path(__file__).parents[1]
PARTS = ("schemas", "recorder", "evaluator")
FOLDERS = {
    **{part: ROOT / part / "evaltap" / part for part in PARTS},
    "api": ROOT / "evaluator/evaltap/api",
    "cli": ROOT / "evaluator/evaltap/cli",
}
PLUGINS = (
    "adk",
    "claude_agent",
    "langchain",
    "openai_agents",
    "openai_run_hooks",
    "pydantic_ai",
    "strands",
)
SURFACE = ROOT / "tests/data/public_surface.json"
"""Every name that users import, call or configure; a change here is a change of the public interface."""


def test_the_namespace_has_no_init_file_and_each_room_is_typed() -> None:
    for folder in FOLDERS.values():
        assert not (folder.parent / "__init__.py").exists()
        assert (folder / "py.typed").exists()


def public_surface() -> dict[str, list[str]]:
    """Return the public names of each part, the plugins, entry points and commands."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = {
        f"entry points: {group}": sorted(names) for group, names in stated["entry-points"].items()
    }
    plugins = FOLDERS["recorder"] / "plugins"
    return {
        **{f"evaltap.{part}": import_module(f"evaltap.{part}").__all__ for part in (*PARTS, "api")},
        **{
            f"evaltap.recorder.plugins.{name}": public_definitions(plugins / f"{name}.py")
            for name in PLUGINS
        },
        **points,
        "commands": sorted(every_command()),
        "scripts": sorted(stated["scripts"]),
        "extras": sorted(stated["optional-dependencies"]),
    }


def public_definitions(path: Path) -> list[str]:
    """Return the classes and functions of a module that no underscore marks as private."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    found = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)]
    return sorted(name for name in found if not name.startswith("_"))


def test_the_public_surface_is_the_one_on_record() -> None:
    assert public_surface() == json.loads(SURFACE.read_text())


CORE = {"opentelemetry", "orjson", "pydantic", "pydantic_core"}
EXPLAINED = {
    "claude_agent_sdk",
    "deepeval",
    "glin_profanity",
    "py3langid",
    "pyarrow",
    "yaml",
    "pytest",
    "ray",
    "truststore",
    "wordllama",
}
"""Packages whose users say themselves what is to be installed, or do without."""


@pytest.mark.slow
def test_a_command_names_the_extra_of_every_package_that_it_may_miss() -> None:
    imported = {
        name
        for folder in (FOLDERS["evaluator"], FOLDERS["api"], FOLDERS["cli"])
        for path in folder.rglob("*.py")
        for name in imported_packages(path)
    }

    assert imported - set(sys.stdlib_module_names) - {"evaltap"} - CORE - EXPLAINED <= set(EXTRAS)


def imported_packages(path: Path) -> set[str]:
    """Return the top-level packages that a module imports, at its head or in a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("room", [*PARTS, "api"])
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
        "import sys\nfrom evaltap.cli.main import main\n"
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
        for match in re.findall(r"^evaltap\[(.*?)\]", str(requirement))
        for extra in match.split(",")
    }
    assert named
    assert named <= set(extras)
