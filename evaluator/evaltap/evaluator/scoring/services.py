"""The default judges and embedders, loaded when a metric first needs one."""

from functools import cache
from typing import Final

from evaltap.evaluator.scoring.contract.context import EmbedderProvider, JudgeProvider, Services


@cache
def _judges() -> JudgeProvider:
    from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges

    return EnvironmentJudges()


@cache
def _embedders() -> EmbedderProvider:
    from evaltap.evaluator.scoring.embeddings import EnvironmentEmbedders

    return EnvironmentEmbedders()


DEFAULT_SERVICES: Final = Services(
    judge=lambda model: _judges()(model), embeddings=lambda model: _embedders()(model)
)
"""Shared by all scorers, so that judges reuse connections."""
