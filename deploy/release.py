"""Build what a release publishes into dist/: wheel, sdist, the bill of materials, and their hashes.

    python deploy/release.py                      # version as pyproject.toml says
    python deploy/release.py --expect-tag v0.1.0

Each file is built twice from a clean checkout of HEAD, and differing bytes are an error.  Whoever builds the
same commit gets the same files: times come from the commit.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSTALLER = ["--installer", "uv"] if find_spec("uv") else []  # pip takes several times as long
SBOM = ROOT / "deploy/sbom.cdx.json"


def main() -> int:
    """Build; return 1 when two builds differ, 2 when the tag is not that of the version."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--expect-tag", metavar="vX.Y.Z", help="the tag that the release is made of"
    )
    tag = parser.parse_args().expect_tag
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if tag is not None and tag != f"v{version}":
        print(
            f"the tag is {tag}, pyproject.toml says {version}; expected v{version}", file=sys.stderr
        )
        return 2
    with tempfile.TemporaryDirectory() as folder:
        first, second = (built(Path(folder) / name) for name in ("first", "second"))
        for one, other in zip(first, second, strict=True):
            if one.read_bytes() != other.read_bytes():
                print(f"{one.name}: two builds of one commit differ", file=sys.stderr)
                return 1
        publish([*first, SBOM])
    return 0


def built(folder: Path) -> list[Path]:
    """Build wheel and sdist of HEAD in a clean checkout; return them by name."""
    git = ["git", "-C", str(ROOT)]
    subprocess.run(
        [*git, "worktree", "add", "--quiet", "--detach", str(folder), "HEAD"], check=True
    )
    try:
        time = subprocess.run([*git, "log", "-1", "--format=%ct"], check=True, capture_output=True)
        environ = {**os.environ, "SOURCE_DATE_EPOCH": time.stdout.decode().strip()}
        out = folder.parent / f"{folder.name}-dist"
        command = [sys.executable, "-m", "build", "--outdir", str(out), *INSTALLER, str(folder)]
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(folder)], check=True)
    return sorted(out.iterdir())


def publish(files: list[Path]) -> None:
    """Copy the files into dist/ and write their hashes beside them."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    lines = []
    for file in files:
        shutil.copyfile(file, dist / file.name)
        lines.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    (dist / "SHA256SUMS").write_text("".join(lines))
    print("".join(lines), end="")


if __name__ == "__main__":
    raise SystemExit(main())
