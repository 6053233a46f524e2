"""Links from turns to their traces in the user's own tracing tool."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from evaltap.schemas.errors import InputError

_FIELD: Final = "{trace_id}"


@dataclass(frozen=True, slots=True)
class TraceUrl:
    """The address of a trace, with the placeholder `{trace_id}`."""

    template: str

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.template)
        except ValueError:  # an incomplete IPv6 address
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"--trace-url {self.template}: expected an http or https address")
        if _FIELD not in parts.path + parts.query + parts.fragment or _FIELD in parts.netloc:
            raise InputError(
                f"--trace-url {self.template}: expected {_FIELD} in its path, query or fragment, e.g."
                f" http://localhost:16686/trace/{_FIELD}"
            )

    def of(self, trace_id: str | None) -> str:
        """Return the address of a trace; empty for a turn without one."""
        return self.template.replace(_FIELD, quote(trace_id, safe="")) if trace_id else ""
