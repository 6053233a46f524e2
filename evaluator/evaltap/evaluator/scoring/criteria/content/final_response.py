"""The final response criterion: all of its text, JSON, ROUGE and XML parts must hold."""

from collections.abc import Callable

from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.criteria.content import text
from evaltap.evaluator.scoring.criteria.content.json_value import JsonCheck, RawJson, compile_json
from evaltap.evaluator.scoring.criteria.content.rouge import compile_rouge
from evaltap.evaluator.scoring.criteria.content.xml import compile_xml
from evaltap.schemas.formats.metric import FinalResponseCriterion

PartCheck = Callable[[str, str], str | None]


class FinalResponseMatcher:
    """A compiled criterion; usable from any thread.

    Raises MetricError if a part names a custom comparison or tokenizer.
    """

    def __init__(self, criterion: FinalResponseCriterion) -> None:
        text.reject_custom(criterion.compare_name, "finalResponse")
        given = (criterion.json_, criterion.text, criterion.rouge, criterion.xml)
        self._configured = any(part is not None for part in given)
        self._parts = _compile_parts(criterion)
        # XML is only checked to be well-formed.
        self.compares = any(name != "xml" for name, _ in self._parts)
        self._accepts_itself = all(
            part is None for part in (criterion.json_, criterion.rouge, criterion.xml)
        ) and text.accepts_itself(criterion.text)

    def mismatch(self, actual: Turn, expected: Turn) -> str | None:
        """Return why the final responses do not match; None if they do.

        A missing expected response counts as an empty text.
        """
        if not self._configured:
            return "final response criterion is empty: must configure text, json, rouge, or xml"
        answer, wanted = actual.final_text, expected.final_text
        if (answer is None or wanted is None) and (actual.absent or expected.absent):
            return "actual or expected invocation is nil"
        if answer is None:
            return None if wanted is None else "actual final response is nil"
        if answer == wanted and self._accepts_itself:
            return None
        reasons = [
            f"{name} mismatch: {reason}"
            for name, check in self._parts
            if (reason := check(answer, wanted or "")) is not None
        ]
        return "; ".join(reasons) if reasons else None

    def lacking(self, actual: Turn, expected: Turn) -> str | None:
        """Return why a final response cannot be compared; None if both can or nothing is compared."""
        if not self._parts or not (actual.capture or expected.capture):
            return None
        reason = expected.lacks("finalResponse")
        return actual.lacks("finalResponse") or (reason and f"expected {reason}")


def _compile_parts(criterion: FinalResponseCriterion) -> list[tuple[str, PartCheck]]:
    parts: list[tuple[str, PartCheck]] = []
    if criterion.json_ is not None and not criterion.json_.ignore:
        parts.append(("json", _on_raw(compile_json(criterion.json_))))
    if criterion.text is not None and not criterion.text.ignore:
        parts.append(("text", text.compile_text(criterion.text)))
    if criterion.rouge is not None and not criterion.rouge.ignore:
        parts.append(("rouge", compile_rouge(criterion.rouge)))
    if criterion.xml is not None and not criterion.xml.ignore:
        check_xml = compile_xml(criterion.xml)
        parts.append(("xml", lambda actual, _expected: check_xml(actual)))
    return parts


def _on_raw(check: JsonCheck) -> PartCheck:
    return lambda actual, expected: check(RawJson(actual), RawJson(expected))
