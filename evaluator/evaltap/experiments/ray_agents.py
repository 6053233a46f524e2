"""Run the agent on a Ray cluster: a pool of actors in place of the one process on this machine.

An actor records into its memory and returns the records of a unit with its end; this process writes them to
the log, from where they land as those of any agent.  The module of the agent must be importable from the same
folder on every node.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final

from evaltap.evaluator.pipeline.batch.ray_cluster import RayCluster, readable
from evaltap.experiments.agents.base import Abilities, Agent, Unit
from evaltap.experiments.partners import Partners
from evaltap.experiments.process import START_SECONDS, AgentEnd
from evaltap.experiments.pseudonyms import Inventions
from evaltap.experiments.worker import UnitEnd, Worker, WorkerSettings, cast_of, recorder_of
from evaltap.recorder import LocalLogSink, MemorySink
from evaltap.schemas.errors import EvaltapError, InputError
from evaltap.schemas.wire.record import WireRecord

_FLUSH_SECONDS: Final = 30.0
_MOST_RECORDS: Final = 1_000_000
"""Of units that run at once on one actor; they are fetched with the end of each."""


class RayAgents(AgentEnd):
    """Actors with the agent, each with some units at once; one that dies ends them all.

    The experiment then starts them anew and tries what ran on the dead one again, each unit alone.  Raises
    InputError if the cluster cannot be reached, or the agent cannot be imported there.
    """

    def __init__(
        self, settings: WorkerSettings, *, address: str | None = None, count: int = 0
    ) -> None:
        self.running, self.begun, self.has_ended = {}, set(), False
        self._death = ""
        self._log = LocalLogSink(settings.log)
        self._cluster = RayCluster(address)
        self._cluster.__enter__()
        self._refs: dict[Any, tuple[Unit, int]] = {}
        try:
            ray = self._cluster.ray
            count = count or self._cluster.processors()
            each = max(1, -(-settings.concurrency // count))
            made = ray.remote(_Actor)
            self._actors = [
                made.options(max_concurrency=each + 1, num_cpus=1).remote(
                    settings, str(Path.cwd()), each
                )
                for _ in range(count)
            ]
            found = ray.get(self._actors[0].abilities.remote(), timeout=START_SECONDS)
        except BaseException as error:
            self.close()
            if isinstance(error, Exception):
                raise readable(error) from None
            raise
        if isinstance(found, str):
            self.close()
            raise InputError(found)
        self.abilities: Abilities = found

    def start(self, unit: Unit) -> None:
        """Give the unit to the actor with the fewest."""
        self.running[unit.run, unit.eval_id] = unit
        busy = [0] * len(self._actors)
        for _, place in self._refs.values():
            busy[place] += 1
        place = busy.index(min(busy))
        ref = self._actors[place].run.remote(unit)
        self._refs[ref] = unit, place

    def take(self, seconds: float) -> list[tuple[Unit, UnitEnd]]:
        """Write what units have recorded to the log, and return those that have ended."""
        ray, ended = self._cluster.ray, []
        if not self._refs:
            return []
        ready, _ = ray.wait([*self._refs], num_returns=1, timeout=seconds)
        if ready:
            ready, _ = ray.wait([*self._refs], num_returns=len(self._refs), timeout=0)
        for ref in ready:
            unit, place = self._refs.pop(ref)
            try:
                end, records = ray.get(ref)
            except ray.exceptions.RayActorError:
                self._actor_died(unit, place)
                break
            self._log.append(records)
            del self.running[unit.run, unit.eval_id]
            ended.append((unit, end))
        return ended

    def _actor_died(self, unit: Unit, place: int) -> None:
        self.has_ended, self._death = True, "died on the cluster"
        lost = [unit, *(one for one, at in self._refs.values() if at == place)]
        self.begun = {(one.run, one.eval_id) for one in lost}

    def finish(self) -> None:
        """Write what the recorders say at their end."""
        ray = self._cluster.ray
        for actor in self._actors:
            try:
                self._log.append(ray.get(actor.close.remote(), timeout=_FLUSH_SECONDS))
            except ray.exceptions.RayError:  # it has died: what it recorded is there
                continue

    def close(self) -> None:
        """End the actors, and a cluster that was started for them."""
        for actor in getattr(self, "_actors", ()):
            self._cluster.ray.kill(actor)
        self._actors = []
        self._log.close()
        self._cluster.__exit__()

    def death(self) -> str:
        """Say how an actor ended."""
        return self._death


class _Actor:
    """The agent on a node of the cluster."""

    def __init__(self, settings: WorkerSettings, folder: str, concurrency: int) -> None:
        os.environ["EVALTAP_DISABLED"] = "1"  # of the agent's own plugins
        if os.path.isdir(folder):
            os.chdir(folder)
        sys.path.insert(0, folder)
        self._settings = settings
        self._sink, self._inventions = MemorySink(limit=_MOST_RECORDS), Inventions()
        self._recorder, self._redactor = recorder_of(self._settings, self._inventions, self._sink)
        self._room = asyncio.Semaphore(concurrency)
        self._making = asyncio.Lock()
        self._agent: Agent | None = None
        self._partners = Partners()
        self._worker: Worker | None = None

    async def abilities(self) -> Abilities | str:
        """Return what the agent can be given, or why there is none."""
        try:
            await self._made()
        except EvaltapError as error:
            return str(error)
        assert self._agent is not None  # just made
        return self._agent.abilities

    async def _made(self) -> Worker:
        async with self._making:
            if self._worker is None:
                self._agent, self._partners = await cast_of(self._settings, self._recorder)
                self._worker = Worker(
                    self._agent,
                    self._recorder,
                    self._settings,
                    self._inventions,
                    partners=self._partners,
                    redactor=self._redactor,
                )
            return self._worker

    async def run(self, unit: Unit) -> tuple[UnitEnd, list[WireRecord]]:
        """Run a unit; return its end, and what was recorded since the last one."""
        worker = await self._made()
        async with self._room:
            end = await worker.run(unit)
        await asyncio.to_thread(self._recorder.flush, _FLUSH_SECONDS)
        return end, self._taken()

    async def close(self) -> list[WireRecord]:
        """Close the recorder, and return what it says last."""
        await asyncio.to_thread(self._recorder.close, _FLUSH_SECONDS)
        self._partners.close()
        return self._taken()

    def _taken(self) -> list[WireRecord]:
        found, self._sink.records = self._sink.records, []
        return found
