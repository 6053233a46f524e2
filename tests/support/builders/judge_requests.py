"""Requests to judges, with prices."""

from dataclasses import replace

from evaltap.evaluator.scoring.contract.judge import JudgeRequest
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.schemas.formats.metric import JudgePrices

SETTINGS = JudgeSettings("m-1", "http://judge/v1", "k")


PRICED = replace(SETTINGS, prices=JudgePrices(input_per_million=1.0, output_per_million=2.0))


REQUEST = JudgeRequest("Is it so?", "verdict", {"type": "object"})
