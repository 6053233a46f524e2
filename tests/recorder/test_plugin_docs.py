"""The script of each framework's page runs unchanged and leaves a turn on the log."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.schemas.wire.record import DecodedCase, decode_record

DOCS = Path(__file__).parents[2] / "docs/how-to"
PAGES = [
    "record-claude.md",
    "record-google-adk.md",
    "record-langchain.md",
    "record-openai-agents.md",
    "record-opentelemetry.md",
    "record-pydantic-ai.md",
    "record-strands.md",
]


def turn_of(log: Path) -> dict[str, Any]:
    source = LocalLogSource(log)
    decoded = [decode_record(item.record) for item in source.poll(10, 0).records]
    source.close()
    (case,) = (item.case for item in decoded if isinstance(item, DecodedCase))
    assert case["evalId"] == "session-1"
    (turn,) = case["actualConversation"]
    return dict(turn)


@pytest.mark.parametrize("page", [*PAGES, "record-your-loop.md"])
def test_every_page_says_where_user_app_version_and_content_come_from(page: str) -> None:
    text = (DOCS / page).read_text()

    assert "et user, app and version" in text
    assert re.search(r"\*\*User( and app)?\*\*", text)
    assert re.search(r"\*\*(App and v|V)ersion\*\*", text)
    assert re.search(r"\*\*Content\*\*|### Turn on content capture", text)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_script_of_the_page_records_a_turn(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text()
    script = next(
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "close()" in block
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "delivered=1" in done.stdout
    turn = turn_of(tmp_path / "agent.log.db")
    assert turn["userContent"]["content"] == "Where is A-100?"
    assert turn["finalResponse"]["content"] == "Order A-100 has shipped."
    assert [tool["name"] for tool in turn["tools"]] == ["get_order"]
    assert turn["tools"][0]["arguments"] == {"order_id": "A-100"}
    assert "shipped" in str(turn["tools"][0]["result"])
