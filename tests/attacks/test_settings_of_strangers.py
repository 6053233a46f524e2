"""A settings file that somebody else left in a folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support.builders.cases import make_case

PROGRAM = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"


def test_it_does_not_send_conversations_to_its_brokers(tmp_path: Path) -> None:
    (tmp_path / "evaltap.toml").write_text('log = "kafka://stranger.example:9092/evaltap.cases"\n')
    (tmp_path / "c.jsonl").write_text(json.dumps(make_case("s")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVALTAP")}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "record", "cases", "c.jsonl"],
        cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 2
    assert "conversations would be sent to the brokers named in this file" in done.stderr
