"""`final_response_avg_score`: the share of turns whose final response matches the expected one.

All of the criterion's text, JSON, ROUGE and XML parts must hold.
"""

from collections.abc import Callable
from xml.parsers import expat

from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.comparisons import Comparisons, Names, WholeTurns
from evaltap.evaluator.scoring.contract.evaluator import taking_comparisons
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content import text
from evaltap.evaluator.scoring.criteria.content.json_value import JsonCheck, RawJson, compile_json
from evaltap.evaluator.scoring.criteria.content.rouge import compile_rouge
from evaltap.evaluator.scoring.evaluators.pairwise import Matcher, PairwiseEvaluator
from evaltap.schemas.formats.metric import EvalMetric, FinalResponseCriterion, XmlCriterion

PartCheck = Callable[[str, str], str | None]


class FinalResponseMatcher:
    """A compiled criterion; usable from any thread.

    Raises MetricError if a part names a comparison or tokenizer that does not exist.  `compareName` of the
    criterion itself is for whoever chooses the matcher.
    """

    def __init__(self, criterion: FinalResponseCriterion, names: Names | None = None) -> None:
        given = (criterion.json_, criterion.text, criterion.rouge, criterion.xml)
        self._configured = any(part is not None for part in given)
        self._parts = _compile_parts(criterion, names)
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


def _compile_parts(
    criterion: FinalResponseCriterion, names: Names | None
) -> list[tuple[str, PartCheck]]:
    parts: list[tuple[str, PartCheck]] = []
    if criterion.json_ is not None and not criterion.json_.ignore:
        parts.append(("json", _on_raw(compile_json(criterion.json_, names))))
    if criterion.text is not None and not criterion.text.ignore:
        parts.append(("text", text.compile_text(criterion.text, names)))
    if criterion.rouge is not None and not criterion.rouge.ignore:
        parts.append(("rouge", compile_rouge(criterion.rouge, names)))
    if criterion.xml is not None and not criterion.xml.ignore:
        check_xml = compile_xml(criterion.xml)
        parts.append(("xml", lambda actual, _expected: check_xml(actual)))
    return parts


def _on_raw(check: JsonCheck) -> PartCheck:
    return lambda actual, expected: check(RawJson(actual), RawJson(expected))


def compile_xml(criterion: XmlCriterion) -> Callable[[str], str | None]:
    """Return the check of the actual text; `skip` is the only strategy, as nothing is compared."""
    if criterion.ignore:
        return lambda _: None
    if not criterion.match_strategy:
        return lambda _: "xml match strategy is empty; expected skip"
    if criterion.match_strategy != "skip":
        return lambda _: f"invalid match strategy {criterion.match_strategy}; expected skip"
    return malformed if criterion.valid else lambda _: None


def malformed(text: str) -> str | None:
    """Return why `text` is not one XML document; None if it is."""
    parser = expat.ParserCreate(encoding="utf-8")
    parser.buffer_text = True

    def declared(version: str, encoding: str | None, _standalone: int) -> None:
        if version != "1.0":
            raise ValueError(f"unsupported version {version}; expected 1.0")
        if encoding is not None and encoding.lower() != "utf-8":
            raise ValueError(f"unsupported encoding {encoding}; expected utf-8")

    def other(data: str) -> None:
        # With a default handler in place, expat reports an internal entity instead of expanding it.
        if data.startswith("&"):
            raise ValueError(f"undefined entity {data}")

    parser.XmlDeclHandler = declared
    parser.CharacterDataHandler = lambda _: None
    parser.DefaultHandler = other
    try:
        parser.Parse(text.strip(" \t\r\n").encode(), True)
    except (expat.ExpatError, ValueError) as error:
        return f"invalid xml: {error}"
    return None


@taking_comparisons
class FinalResponse(PairwiseEvaluator):
    """Compare the final response of each turn with that of the expected turn.

    Raises MetricError if `criterion.finalResponse` is missing, or names a comparison that does not exist.
    """

    name = "final_response_avg_score"
    reads_answer = True

    def __init__(self, metric: EvalMetric, comparisons: Comparisons | None = None) -> None:
        criterion = require(metric, lambda given: given.final_response, "finalResponse")
        names = Names(comparisons)
        if criterion.compare_name:
            check = names.comparison("finalResponse", criterion.compare_name)
            matcher: Matcher = WholeTurns(check, "finalResponse")
        else:
            matcher = FinalResponseMatcher(criterion, names)
            if criterion.rouge is not None:
                self.version = "3"  # words of scripts other than Latin
        super().__init__(metric, matcher)
        self.version = names.version(self.version)
