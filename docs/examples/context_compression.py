"""Evaluate the compression of a long conversation: what survives at each checkpoint, and how short it is.

An agent that runs for hours replaces its history by a summary now and then.  Each time is a checkpoint:
the history before it, the summary after it, and the facts that later work depends on.  The formatter
makes one eval case of a conversation, with a turn for each checkpoint, so that evaltap's evaluators and
a judge can look at it.  Run it: `python context_compression.py`.
"""

import json
from dataclasses import dataclass
from typing import Any

from evaltap.evaluator import (
    CaseScorer,
    Func,
    JudgeRequest,
    Registry,
    ScriptedJudge,
    Services,
    Turn,
)
from evaltap.schemas import EvalMetric


@dataclass(frozen=True)
class Checkpoint:
    """One compression: what went in, what came out, and what must not get lost."""

    history: str
    summary: str
    facts: tuple[str, ...]


def format_case(conversation_id: str, checkpoints: list[Checkpoint]) -> dict[str, Any]:
    """Return the eval case: history asked, summary answered, facts expected, one turn a checkpoint."""
    return {
        "evalId": conversation_id,
        "evalMode": "trace",
        "sessionInput": {"appName": "compressor", "userId": "agent"},
        "actualConversation": [
            {
                "invocationId": f"checkpoint-{number}",
                "userContent": {"role": "user", "content": checkpoint.history},
                "finalResponse": {"role": "assistant", "content": checkpoint.summary},
            }
            for number, checkpoint in enumerate(checkpoints, start=1)
        ],
        "conversation": [
            {"finalResponse": {"role": "assistant", "content": "\n".join(checkpoint.facts)}}
            for checkpoint in checkpoints
        ],
    }


def facts_survive(turn: Turn, expected: Turn) -> tuple[float, str]:
    """Score the share of the checkpoint's facts that the summary still states, word for word."""
    facts = (expected.final_text or "").splitlines()
    lost = [fact for fact in facts if fact.lower() not in (turn.final_text or "").lower()]
    return 1 - len(lost) / len(facts), f"lost: {', '.join(lost)}" if lost else ""


def is_short(turn: Turn, expected: Turn) -> tuple[bool, str]:
    """Want the summary to have at most half the words of the history."""
    before, after = len((turn.user_text or "").split()), len((turn.final_text or "").split())
    return after <= before / 2, f"{before} words -> {after}"


METRICS = [
    EvalMetric(metric_name="facts_survive", threshold=1.0),
    EvalMetric(metric_name="is_short", threshold=1.0),
    EvalMetric.model_validate(
        {
            "metricName": "adds nothing",
            "evaluatorName": "llm_criteria",
            "threshold": 0.75,
            "criterion": {
                "llmJudge": {},
                "grading": {
                    "criteria": [
                        {
                            "id": "faithful",
                            "text": "The final answer says nothing that the user message does not say.",
                            "scale": "likert5",
                        }
                    ]
                },
            },
        }
    ),
]


def scripted_judge(request: JudgeRequest) -> str:
    """Stand in for a model: whoever speaks of a refund made it up.  Use a real judge in earnest."""
    answer = request.prompt.partition("begin final answer")[2].partition("end final answer")[0]
    value = 1 if "refund" in answer else 5
    return json.dumps({"grades": {"faithful": {"value": value, "reason": f"refund: {value == 1}"}}})


CHECKPOINTS = [
    Checkpoint(
        "Customer: hello, this is Ann. I ordered on the third of May, the order is A-100, and it is "
        "still not here, although the page said four days. I live in Bern now, not in Basel any more. "
        "Agent: thank you Ann, I see the order A-100 with the old address in Basel.",
        "Ann asks for order A-100; the address must be Bern, not Basel.",
        ("A-100", "Bern"),
    ),
    Checkpoint(
        "Ann asks for order A-100; the address must be Bern, not Basel. Customer: and please before "
        "Friday, as I am away from then on. Agent: I changed the address, the parcel leaves today and "
        "arrives on Thursday. Customer: good, thank you very much for that.",
        "Ann's order arrives on Thursday; she may get a refund.",
        ("A-100", "Thursday", "Friday"),
    ),
]


def main() -> None:
    """Score the conversation and print what became of it at each checkpoint."""
    scorer = CaseScorer(
        METRICS,
        services=Services(judge=lambda model: ScriptedJudge(scripted_judge)),
        registry=Registry().extended([Func(facts_survive), Func(is_short)]),
    )
    score = scorer.score(format_case("ann-1", CHECKPOINTS))
    print(f"{score.eval_id}: {score.status}")
    for outcome in score.metrics:
        print(f"{outcome.name}: {outcome.score:.2f} {outcome.status}")
        for number, turn in enumerate(outcome.turns, start=1):
            print(f"  checkpoint {number}: {turn.score:.2f} {turn.reason}".rstrip())


if __name__ == "__main__":
    main()
