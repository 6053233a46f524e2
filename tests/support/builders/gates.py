"""Gates, rules and cases for tests of gates."""

import json
from typing import Any

from evaltap.evaluator import Gate, ScriptedJudge, Services
from support.builders.cases import make_case, make_turn


def rule(name: str, *values: str, **more: Any) -> dict[str, Any]:
    return {
        "metricName": name,
        "evaluatorName": "rule_avg_score",
        "threshold": 1,
        "criterion": {
            "rules": {"rules": [{"id": "1", "type": "contains", "values": [*values], **more}]}
        },
    }


CORRECT = {
    "name": "correctness",
    "threshold": 0.8,
    "metrics": [rule("names order", "A-100"), rule("names day", "Monday")],
}


SAFE = {
    "name": "safety",
    "threshold": 1.0,
    "metrics": [rule("no refund promised", "refund", negate=True)],
}


CHANGES = {
    "name": "change safety",
    "threshold": 1.0,
    "metrics": [
        {
            "metricName": "trajectory_forbidden",
            "threshold": 1,
            "criterion": {"trajectory": {"forbidden": ["delete_order"]}},
        }
    ],
}


QUALITY = {
    "name": "quality",
    "threshold": 0.7,
    "criteria": [
        {"id": "clear", "text": "Is it clear?", "scale": "likert5"},
        {"id": "kind", "text": "Is it kind?", "scale": "pass_fail"},
    ],
}


GOOD = "A-100 comes on Monday."


def gate(*dimensions: dict[str, Any], judge: ScriptedJudge | None = None, **environ: str) -> Gate:
    services = Services() if judge is None else Services(judge=lambda _: judge)
    return Gate({"dimensions": [*dimensions]}, services=services, environ=environ)


def case(answer: str = GOOD, **given: Any) -> dict[str, Any]:
    return make_case(turns=[make_turn(answer=answer, **given)])


def grades(clear: int, kind: str) -> str:
    values = {"clear": clear, "kind": kind}
    told = {key: {"value": value, "reason": f"{key}: {value}"} for key, value in values.items()}
    return json.dumps({"grades": told})
