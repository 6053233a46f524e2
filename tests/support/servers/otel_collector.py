"""A real OpenTelemetry Collector, built with Go and run as a process: OTLP over HTTP in, Kafka out."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from support.servers.broker import free_port, listens
from support.servers.cached import cache_folder, kept

MANIFEST = Path(__file__).parent / "collector" / "builder.yaml"
VERSION: str = yaml.safe_load(MANIFEST.read_text())["dist"]["version"]
BUILD_SECONDS = 1_200
START_SECONDS = 30
STOP_SECONDS = 30
_NAME = f"collector-{VERSION}-{hashlib.sha256(MANIFEST.read_bytes()).hexdigest()[:8]}"


def missing() -> str | None:
    """Return why there can be no Collector here, None when there can."""
    if shutil.which("go") is None and not cache_folder(_NAME).is_dir():
        return "an OpenTelemetry Collector is built with Go, which is not here"
    return None


def program() -> Path:
    """Return the Collector's program, built when it is not there: some minutes, once."""
    return kept(_NAME, _build) / "otelcol-evaltap"


def _build(folder: Path) -> None:
    tools = folder / "tools"
    environment = {**os.environ, "GOBIN": str(tools)}
    manifest = yaml.safe_load(MANIFEST.read_text())
    manifest["dist"]["output_path"] = str(folder / "out")
    filled = folder / "builder.yaml"
    filled.write_text(yaml.safe_dump(manifest))
    for command in (
        ["go", "install", f"go.opentelemetry.io/collector/cmd/builder@v{VERSION}"],
        [str(tools / "builder"), "--config", str(filled)],
    ):
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (folder / "out" / "otelcol-evaltap").rename(folder / "otelcol-evaltap")
    shutil.rmtree(folder / "out")
    shutil.rmtree(tools)


class Collector:
    """A running Collector that exports to a broker; use it in a `with` statement.

    `exporter` are settings of its Kafka exporter beside the brokers.
    """

    def __init__(self, folder: Path, broker: str, exporter: Mapping[str, Any]) -> None:
        self.port = free_port()
        self._output = folder / "collector.out"
        self._config = folder / "collector.yaml"
        pipeline = {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["kafka"]}
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{self.port}"}}}},
            "processors": {"batch": {"timeout": "50ms"}},
            "exporters": {"kafka": {"brokers": [broker], **exporter}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {name: pipeline for name in ("traces", "logs", "metrics")},
            },
        }
        self._config.write_text(json.dumps(config))  # JSON is YAML
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where it takes OTLP over HTTP."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        with self._output.open("ab") as file:
            self._process = subprocess.Popen(
                [program(), "--config", self._config], stdout=file, stderr=file
            )
        deadline = time.monotonic() + START_SECONDS
        while not listens(self.port):
            if time.monotonic() > deadline or self._process.poll() is not None:
                self._process.kill()
                said = self._output.read_text()[-3000:]
                raise TimeoutError(f"the Collector did not start:\n{said}")
            time.sleep(0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it in order: it exports what it holds first."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_SECONDS)
