"""The most that one request to a judge can cost, known before it is made."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from evaltap.evaluator.judge import JudgeRequest

FRAME_TOKENS: Final = 64
"""Tokens that a server puts around one user message."""
UNBOUNDED_OUTPUT: Final = 1 << 40
"""Output tokens of a request that sets no bound."""

_BOUNDS: Final = ("max_tokens", "max_completion_tokens")


def worst_tokens(request: JudgeRequest, bound: int | None = None) -> tuple[int, int]:
    """Return the most input and output tokens of a request; `bound` is one sent beside it.

    No tokenizer in use makes more tokens of a text than it has bytes in UTF-8.
    """
    schema = b"" if request.answer_schema is None else orjson.dumps(request.answer_schema)
    prompt = len(request.prompt.encode("utf-8", "surrogatepass"))
    output = request.generation.max_tokens if bound is None else bound
    return prompt + len(schema) + FRAME_TOKENS, UNBOUNDED_OUTPUT if output is None else output


def output_bound(extra_body: Mapping[str, Any]) -> int | None:
    """Return the bound on the answer among the extra fields of a request, None without one."""
    bounds = [extra_body[name] for name in _BOUNDS if isinstance(extra_body.get(name), int)]
    return max(bounds, default=None)
