"""Decide what answers the tool calls of an experiment: what production recorded runs no tool by accident."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evaltap.experiments.agents.base import Abilities
from evaltap.experiments.mocks.policy import Match, MockPolicy, OnMiss
from evaltap.experiments.mocks.recorded import names
from evaltap.experiments.plan import CaseSet, RunCase
from evaltap.schemas.data import Json
from evaltap.schemas.text import counted, did_you_mean

Mode: TypeAlias = Literal["auto", "recorded", "declared", "off"]
"""auto: recorded for cases from production, otherwise declared where a case declares mocks, otherwise off."""
_ALLOW = "or --allow-real-tools lets tools run"


def is_served(agent: str) -> bool:
    """Return whether recorded tools are served to an agent, as it is elsewhere: they cannot run for real."""
    return agent.startswith(("command:", "http://", "https://"))


@dataclass(frozen=True, slots=True)
class MockChoice:
    """What the user says about tool calls."""

    mode: Mode = "auto"
    match: Match = "args"
    ignore: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    on_miss: Mapping[str, OnMiss] = field(default_factory=dict)
    read_only: Sequence[str] = ()
    """Tools that may run for real where nothing was recorded."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    allow_real: bool = False
    latency: bool = False
    stop_off_script: bool = False

    def policy(self, cases: Sequence[RunCase]) -> MockPolicy | None:
        """Return how calls are answered; None lets every tool run."""
        mode: Mode = self.mode
        if mode == "auto":
            mode = "declared" if any(one.declares_mocks for one in cases) else "off"
            mode = "recorded" if any(one.is_recorded for one in cases) else mode
        if mode == "off" or (mode == "recorded" and self.allow_real and not self._recorded(cases)):
            return None
        real: dict[str, OnMiss] = {tool: "real" for tool in self.read_only}
        return MockPolicy(
            recorded=mode == "recorded",
            match=self.match,
            ignore=self.ignore,
            on_miss=real | dict(self.on_miss),
            real=self.allow_real,
            renamed=self.renamed,
            latency=self.latency,
            stop_off_script=self.stop_off_script,
        )

    def problems(self, cases: CaseSet, abilities: Abilities | None) -> list[str]:
        """Return what keeps the choice from being carried out."""
        policy, recorded = self.policy(cases.cases), self._recorded(cases.cases)
        found = self.wrong_names(cases.cases)
        from_production = [one for one in cases.cases if one.is_recorded]
        if policy is None:
            if from_production and not self.allow_real:
                found.append(
                    f"the set comes from production ({counted(len(from_production), 'case')}), and without"
                    f" mocks the agent's tools would run; leave --mocks out, {_ALLOW}"
                )
            return found
        if self.mode == "recorded" and not recorded:
            found.append("no case of the set has recorded tool calls; leave --mocks out")
        bare = [one.eval_id for one in from_production if one.is_bare]
        if bare and policy.recorded and not self.allow_real:
            found.append(
                f"{counted(len(bare), 'case')} of the set hold no recorded results: {bare[0]}; curate with"
                f" `--as recorded`, {_ALLOW}"
            )
        return found + self._inabilities(abilities, recorded=bool(recorded or not policy.recorded))

    def _inabilities(self, abilities: Abilities | None, *, recorded: bool) -> list[str]:
        """Return why the agent's calls cannot be answered; `recorded`: there is something to answer with."""
        found = []
        if abilities is not None:
            found += [f"the agent cannot be replayed: its {one}" for one in abilities.unanswerable]
        if abilities is None or abilities.mocks or not recorded:
            return found
        if not abilities.served_mocks:
            found.append(
                "the agent's tool calls cannot be answered from a recording; --mocks off with"
                " --allow-real-tools lets its tools run"
            )
        elif self.mode == "auto":
            found.append(
                "the agent runs its tools itself; if it takes them from the address in EVALTAP_MOCKS_URL or"
                " {{mocks_url}}, say --mocks recorded; --mocks off with --allow-real-tools lets its tools run"
            )
        return found

    def wrong_names(self, cases: Sequence[RunCase]) -> list[str]:
        """Return the names that cannot be meant: what is said of recorded calls names a recorded tool."""
        recorded = self._recorded(cases)
        known = {*recorded, *self.renamed}
        said = [(f"a tool is named {new}={old}", old) for new, old in self.renamed.items()]
        said += [
            (f"an argument of {one} is ignored", one) for one in self.ignore if one not in known
        ]
        said += [
            (f"{tool} is answered by its closest call", tool)
            for tool, then in self.on_miss.items()
            if then == "closest" and tool not in known
        ]
        found = [
            f"{what}, and the recording has no tool {tool!r};"
            f" {did_you_mean(tool, recorded) or 'recorded: ' + (', '.join(recorded) or 'none')}"
            for what, tool in said
            if tool not in recorded
        ]
        found += [
            f"{tool} may run only if it is read-only; name it in --read-only"
            for tool, then in self.on_miss.items()
            if then == "real" and tool not in self.read_only
        ]
        return found

    def told(self, cases: Sequence[RunCase], agent: str) -> str:
        """Say what answers an agent's tool calls, and which tools may run."""
        if (policy := self.policy(cases)) is None:
            return "the agent's tools run for real"
        recorded = self._recorded(cases)
        known = f"{', '.join(recorded[:8])}{', …' if len(recorded) > 8 else ''}"
        named = {*recorded, *self.renamed}  # another name is a new tool's, or a slip
        may_run = [one if one in named else f"{one} (not recorded)" for one in policy.may_run]
        real = (
            "none of those that are served"
            if is_served(agent)
            else "every tool without a mock"
            if not policy.recorded
            else "every tool without a recorded result"
            if policy.real
            else ", ".join(may_run) or "none"
        )
        source = f"the recording ({known or 'no calls'})" if policy.recorded else "declared mocks"
        return f"tool calls are answered by {source}; tools that may run for real: {real}"

    @staticmethod
    def _recorded(cases: Sequence[RunCase]) -> list[str]:
        return names(one.recording for one in cases)
