"""The fields of a turn and of a tool call that hold content."""

TURN_FIELDS = (
    "userContent",
    "finalResponse",
    "intermediateResponses",
    "contextMessages",
    "state",
)
TOOL_FIELDS = ("arguments", "result", "error")
