"""Files for commands."""

import json
from pathlib import Path
from typing import Any

from support.builders.cases import make_case, make_tool, make_turn


def write(name: str, data: object) -> str:
    if isinstance(data, bytes):
        Path(name).write_bytes(data)
    else:
        Path(name).write_text(data if isinstance(data, str) else json.dumps(data))
    return name


def write_lines(name: str, *cases: dict[str, Any]) -> str:
    return write(name, "".join(json.dumps(case) + "\n" for case in cases))


def case(eval_id: str = "s-1", wrong: bool = False) -> dict[str, Any]:
    tool = make_tool(arguments={"order_id": "other"}) if wrong else make_tool()
    return make_case(eval_id, conversation=[make_turn(tools=[tool])])
