"""`tool_mock`: one call of a tool against the mocks of one side."""

from typing import Any

from evaltap.experiments.service import GeneratorAnswer, GeneratorCall, turn_mocks
from evaltap.recorder.answering import RUN, ToolMiss
from evaltap.schemas.errors import InputError
from live_rows.comparing import Row, same


def check(row: Row) -> None:
    given, wanted = row["input"], row["want"]
    call, asked = given["call"], []

    def generate(asking: GeneratorCall) -> GeneratorAnswer:
        asked.append(asking)
        answer = given["generator"]
        if answer.get("runError") or answer.get("error"):
            raise RuntimeError(answer.get("runError") or answer.get("error"))
        return GeneratorAnswer(answer.get("text") or "", answer.get("structured"))

    found: dict[str, Any] = {}
    try:
        mocks = turn_mocks(given["mocks"], generate if given.get("generator") is not None else None)
    except InputError:
        found = {"error": True, "stage": "configure"}
    else:
        found = {"no_mock": True} if mocks is None else _asked(mocks, call)
    if asked:
        found["generatorCall"] = {
            "message": asked[0].message,
            "instruction": asked[0].instruction,
            "schemaName": asked[0].schema_name,
            "schemaStrict": False,
        }
    want = {key: value for key, value in wanted.items() if key != "peer_error"}
    if "result" in want:
        assert found.pop("result") == want.pop("result")
    same(found, want)


def _asked(mocks: Any, call: Row) -> dict[str, Any]:
    try:
        result = mocks.answer(call["name"], call.get("arguments", ""), call.get("outputSchema"))
    except ToolMiss:
        assert mocks.missed
        return {"error": True, "stage": "call"}
    return {"real_tool_runs": True} if result is RUN else {"result": result}
