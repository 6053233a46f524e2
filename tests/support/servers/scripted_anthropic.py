"""A scripted endpoint of the Messages API, for the real Claude Code: it says one step after the other."""

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from plugin_drivers.driver import INPUT_TOKENS, OUTPUT_TOKENS, Says, says


class ScriptedAnthropic:
    """Follows the script in conversations that have tools; `given` are their requests."""

    def __init__(self, steps: Sequence[Says]) -> None:
        self._steps, self._numbers = list(steps), itertools.count(1)
        self.given: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def answer(self, request: dict[str, Any]) -> Says:
        """Return the next step; what Claude Code asks besides is answered with a word."""
        with self._lock:
            if not request.get("tools"):
                return says("Fine.")
            self.given.append(request)
            return self._steps.pop(0) if self._steps else says("The script has ended.")

    def events(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the answer as a stream of events."""
        step = self.answer(request)
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        message: dict[str, Any] = {
            "id": f"msg_{next(self._numbers)}", "type": "message", "role": "assistant",
            "model": "scripted-1", "content": [], "stop_reason": None, "usage": usage,
        }  # fmt: skip
        yield {"type": "message_start", "message": message}
        blocks: list[tuple[dict[str, Any], dict[str, Any]]] = []
        if step.text:
            text = {"type": "text_delta", "text": step.text}
            blocks.append(({"type": "text", "text": ""}, text))
        for one in step.calls:
            block = {"type": "tool_use", "id": one.call_id, "name": one.tool, "input": {}}
            given = {"type": "input_json_delta", "partial_json": json.dumps(one.arguments)}
            blocks.append((block, given))
        for place, (block, delta) in enumerate(blocks):
            yield {"type": "content_block_start", "index": place, "content_block": block}
            yield {"type": "content_block_delta", "index": place, "delta": delta}
            yield {"type": "content_block_stop", "index": place}
        reason = "tool_use" if step.calls else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
        yield {"type": "message_stop"}


@contextmanager
def serving(script: ScriptedAnthropic) -> Iterator[str]:
    """Serve a script; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self.path.split("?")[0].endswith("/messages") or not request.get("stream"):
                return self._send("application/json", json.dumps({"input_tokens": 1}))
            lines = [
                f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                for event in script.events(request)
            ]
            return self._send("text/event-stream", "".join(lines))

        def do_GET(self) -> None:
            self._send("application/json", "{}")

        do_HEAD = do_GET

        def _send(self, kind: str, body: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
