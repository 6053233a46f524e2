"""Microsoft Agent Framework's workflows; its agents, models and tools are plain GenAI spans.

Source: the spans of agent-framework-core 1.23. `workflow.run` spans contain the executors that run
the agents; without them each agent of a workflow would become its own turn.
"""

from collections.abc import Sequence

from evaltap.recorder.conventions.reading import Kind, Reading
from evaltap.recorder.telemetry.spans import LogRecord, Span

WORKFLOW_ID = "workflow.id"
_NAMES: dict[str, Kind] = {"workflow.run": "run", "workflow.build": "other"}


class AgentFramework:
    """Distinguishes running a workflow from building one."""

    name = "agent-framework"
    marks = (WORKFLOW_ID,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return the reading of a workflow's span, else None."""
        if WORKFLOW_ID not in span.attributes or span.name not in _NAMES:
            return None
        return Reading(self.name, kind=_NAMES[span.name])
