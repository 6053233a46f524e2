"""Evaltap's judge as a DeepEval model; only imported if DeepEval is installed."""

from collections import Counter
from functools import partial

from deepeval.models import DeepEvalBaseLLM  # pyright: ignore[reportMissingImports]  # an extra
from pydantic import BaseModel

from evaltap.evaluator.scoring.contract.judge import Judge, JudgeInvalid, JudgeReply, JudgeRequest
from evaltap.evaluator.scoring.evaluators.judged.answer_text import answer_json, strip_fence
from evaltap.schemas.formats.metric import GenerationConfig


class JudgedModel(DeepEvalBaseLLM):  # type: ignore[misc]  # an optional package
    """Sends requests to evaltap's judge and appends the replies to `replies`.

    `version` is the evaluator's version: cached answers of other versions are not used.
    """

    def __init__(
        self, judge: Judge, generation: GenerationConfig, replies: list[JudgeReply], version: str
    ) -> None:
        super().__init__("evaltap judge")
        self._judge = judge
        self._generation = generation
        self._replies = replies
        self._version = version
        self._asked: Counter[str] = Counter()

    def load_model(self, *_: object, **__: object) -> "JudgedModel":
        """Return the model itself: there is nothing to load."""
        return self

    def generate(self, prompt: object, schema: type[BaseModel] | None = None) -> str:
        """Return the judge's answer as text, which DeepEval parses like the text of any custom model."""
        text = str(prompt)
        request = JudgeRequest(
            text,
            "" if schema is None else schema.__name__,
            None if schema is None else schema.model_json_schema(),
            self._generation,
            # A repeated prompt asks for another opinion, not for the cached answer.
            sample=self._asked[text],
            version=self._version,
            check=None if schema is None else partial(_check_json, schema),
        )
        self._asked[text] += 1
        reply = self._judge.answer(request)
        self._replies.append(reply)
        return reply.text

    async def a_generate(self, prompt: object, schema: type[BaseModel] | None = None) -> str:
        """Return what `generate` returns."""
        return self.generate(prompt, schema)

    def get_model_name(self, *_: object, **__: object) -> str:
        """Return the model's name for DeepEval."""
        return "evaltap judge"


def _check_json(schema: type[BaseModel], text: str) -> None:
    """Raise JudgeInvalid for an answer that violates the schema, so that it is not cached."""
    answer_json(text)  # one JSON value without repeated keys
    try:
        schema.model_validate_json(strip_fence(text))
    except ValueError as error:
        raise JudgeInvalid(f"not a {schema.__name__}: {error}") from None
