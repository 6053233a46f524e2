"""Microsoft Agent Framework's workflows; its agents, models and tools are plain GenAI spans.

Source: the spans of agent-framework-core 1.23.  A workflow is run by `workflow.run`, whose executors
run the agents; without it each agent of a workflow would be a turn of its own.
"""

from collections.abc import Sequence

from evaltap.recorder.conventions.reading import Kind, Reading
from evaltap.recorder.telemetry.spans import LogRecord, Span

WORKFLOW_ID = "workflow.id"
_NAMES: dict[str, Kind] = {"workflow.run": "run", "workflow.build": "other"}


class AgentFramework:
    """Tells the run of a workflow from the building of one."""

    name = "agent-framework"
    marks = (WORKFLOW_ID,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return the reading of a workflow's span, else None."""
        if WORKFLOW_ID not in span.attributes or span.name not in _NAMES:
            return None
        return Reading(self.name, kind=_NAMES[span.name])
