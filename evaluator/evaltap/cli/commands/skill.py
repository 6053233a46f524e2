"""`evaltap skill`: write the playbooks for coding agents where they look for them."""

from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Final

from evaltap.cli.messages import print_outcome
from evaltap.cli.options.inspect import SkillInstallOptions
from evaltap.schemas.files.content import write_bytes

_FOLDERS: Final = {
    "claude": Path(".claude/skills"),
    "codex": Path(".agents/skills"),
    "cursor": Path(".cursor/skills"),
}


def run(options: SkillInstallOptions) -> int:
    """Write the skill and print its path."""
    folder = _FOLDERS.get(options.target, Path(options.target))
    path = folder / "evaltap" / "SKILL.md"
    write_bytes(path, skill().encode())
    print_outcome({"written": str(path)}, f"evaltap skill: {path}", as_json=options.json)
    return 0


def skill() -> str:
    """Return the skill for this version."""
    text = (files("evaltap.cli.commands") / "skill.md").read_text("utf-8")
    return text.replace("{version}", version("evaltap"))
