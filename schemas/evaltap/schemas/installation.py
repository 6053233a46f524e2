"""How evaltap was installed, and thus how to add an extra to it."""

import importlib.util
import json
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """Return the shell command that installs an extra the way evaltap itself was installed."""
    try:
        recorded = distribution("evaltap").read_text("direct_url.json")
    except PackageNotFoundError:  # imported from a source folder
        recorded = None
    source = json.loads(recorded) if recorded else {}
    has_pip = importlib.util.find_spec("pip") is not None
    return install_command_of(extra, source, Path(sys.prefix), has_pip=has_pip)


def install_command_of(
    extra: str, source: Mapping[str, Any], environment: Path, *, has_pip: bool
) -> str:
    """Return the command for an environment; `source` is what PEP 610 records, empty for an index."""
    if (environment / "uv-receipt.toml").is_file():
        installer = "uv tool install --force"
    elif (environment / "pipx_metadata.json").is_file():
        installer = "pipx install --force"
    else:
        installer = "pip install" if has_pip else "uv pip install"
    return f"{installer} {_requirement(extra, source)}"


def _requirement(extra: str, source: Mapping[str, Any]) -> str:
    if not (url := str(source.get("url") or "")):
        return f"'evaltap[{extra}]'"
    if "dir_info" in source:
        folder = shlex.quote(f"{unquote(urlsplit(url).path)}[{extra}]")
        return f"-e {folder}" if source["dir_info"].get("editable") else folder
    if vcs := source.get("vcs_info"):
        revision = vcs.get("requested_revision") or vcs.get("commit_id")
        url = f"{vcs['vcs']}+{url}" + (f"@{revision}" if revision else "")
    return shlex.quote(f"evaltap[{extra}] @ {url}")
