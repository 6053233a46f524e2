"""Evaluate summaries: overlap with a reference, length, and a judge's word on what was left out.

The formatter makes an eval case of an article and its summary.  The cheap metrics run first, in a suite
that goes on after a failure; only what they cannot see is put to the judge.
Run it: `python summarisation.py`.
"""

import json
from typing import Any

from evaltap.evaluator import JudgeRequest, ScriptedJudge, Services, Suite
from evaltap.schemas import EvalMetric

ARTICLE = (
    "The council voted on Tuesday to close the bridge over the mill stream for eight weeks. Cracks in "
    "the northern pillar had been found in March. Buses will go by the station, and the ferry will "
    "cross every ten minutes without a fare. The repair costs two million francs, half of which the "
    "canton pays. The mayor voted against it; she had asked for a new bridge instead."
)
REFERENCE = (
    "The council closes the cracked mill stream bridge for eight weeks of repair; buses go by the "
    "station and a free ferry crosses. The mayor was against it."
)
SUMMARIES = {
    "good": (
        "The council closes the mill stream bridge for eight weeks to repair a cracked pillar. Buses "
        "go by the station, and a free ferry crosses. The mayor was against it."
    ),
    "one-sided": (
        "The council closes the mill stream bridge for eight weeks of repair; buses go by the station "
        "and a free ferry crosses the cracked mill."
    ),
    "off the subject": "A ferry is a boat. Boats have crossed rivers since the bronze age.",
}


def format_case(name: str, article: str, summary: str, reference: str) -> dict[str, Any]:
    """Return the eval case: the article asked, the summary answered, the reference expected."""
    asked = {"userContent": {"role": "user", "content": f"Summarise this article.\n\n{article}"}}
    return {
        "evalId": name,
        "evalMode": "trace",
        "sessionInput": {"appName": "summariser", "userId": "editor"},
        "actualConversation": [
            {**asked, "finalResponse": {"role": "assistant", "content": summary}}
        ],
        "conversation": [{**asked, "finalResponse": {"role": "assistant", "content": reference}}],
    }


METRICS = [
    {
        "metricName": "overlap",
        "evaluatorName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {
            "finalResponse": {"rouge": {"rougeType": "rougeL", "threshold": {"f1": 0.4}}}
        },
    },
    {
        "metricName": "length",
        "evaluatorName": "rule_avg_score",
        "threshold": 1,
        "criterion": {
            "rules": {"rules": [{"id": "short", "type": "length", "min": 40, "max": 200}]}
        },
    },
    {
        "metricName": "both sides",
        "evaluatorName": "llm_criteria",
        "threshold": 0.8,
        "criterion": {
            "llmJudge": {},
            "grading": {
                "criteria": [
                    {
                        "id": "balance",
                        "text": "Says who decided and who disagreed.",
                        "scale": "custom",
                        "labels": {"both": 1.0, "one": 0.5, "none": 0.0},
                        "weight": 2,
                    },
                    {
                        "id": "true",
                        "text": "Says nothing that the article denies.",
                        "scale": "pass_fail",
                    },
                ]
            },
        },
    },
]


def scripted_judge(request: JudgeRequest) -> str:
    """Stand in for a model by looking for two names.  Use a real judge in earnest."""
    answer = request.prompt.partition("begin final answer")[2].partition("end final answer")[0]
    sides = sum(name in answer for name in ("council", "mayor"))
    label = ("none", "one", "both")[sides]
    grades = {
        "balance": {"value": label, "reason": f"names {sides} of 2"},
        "true": {"value": "pass", "reason": ""},
    }
    return json.dumps({"grades": grades})


def main() -> None:
    """Score each summary and print what every metric says of it."""
    suite = Suite(
        [EvalMetric.model_validate(metric) for metric in METRICS],
        services=Services(judge=lambda model: ScriptedJudge(scripted_judge)),
    )
    for name, summary in SUMMARIES.items():
        result = suite.evaluate(format_case(name, ARTICLE, summary, REFERENCE))
        told = ", ".join(f"{one.name} {one.score:.2f} {one.status}" for one in result.outcomes)
        print(f"{name}: {result.status} ({told})")


if __name__ == "__main__":
    main()
