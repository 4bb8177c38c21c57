"""Runs contenders through cells: together, each round in another order, or one after the other where memory is short.

While one is measured the others' processes are stopped. A call that takes more than half a cell's time is made once. A
contender that fails in a cell is left out of it and why is kept; one that does not start is left out of all.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cells import Cell, Prompts
from benchmarks.common import Call, OtherLoad, Samples, interleave, say
from benchmarks.contenders import Contender
from benchmarks.processes import PEERS, PeerProcess, environment, octavo, seconds_to_first_output
from benchmarks.realtime import first_in_line

PAUSE_S = 0.05
REALTIME_PAUSE_S = 1.0  # others have been kept waiting
LONG_START_S = 15.0  # a start that takes longer is measured once


@dataclass
class Found:
    """What a contender did in a cell: samples, or why there are none."""

    version: str = ""
    samples: Samples = field(default_factory=Samples)
    error: str = ""


Results = dict[tuple[str, str], Found]  # (cell, contender's key)


@dataclass(frozen=True)
class Setting:
    """How everything is run."""

    home: Path  # of the peers' environments
    threads: int
    repeats: int
    budget_s: float  # for one cell
    level: str = ""  # engines are kept at it
    realtime_s: float = 0.0  # of each repetition at real-time priority

    @property
    def pause_s(self) -> float:
        """Between two repetitions."""
        return REALTIME_PAUSE_S if self.realtime_s else PAUSE_S

    @property
    def max_rounds(self) -> int:
        """Of repetitions. At real-time priority others run only where the one that is measured leaves a processor idle:
        waiting for them to be quiet would take for ever."""
        return self.repeats + 1 if self.realtime_s else 1000

    def env(self, contender: Contender) -> dict[str, str]:
        """The environment of a contender's program."""
        caps = contender.engine.caps.get(self.level, {}) if self.level else {}
        if contender.is_ours:
            return environment(**contender.engine.env, **caps)
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return {**clean, **contender.engine.env, **caps}

    def words(self, contender: Contender, path: Path) -> list[str]:
        """Python, program, model and threads."""
        return [contender.engine.python(self.home), contender.engine.script, str(path), str(self.threads)]


@dataclass
class Entry:
    """A contender with its file."""

    contender: Contender
    path: Path

    @property
    def key(self) -> str:
        """The contender's."""
        return self.contender.key


class Grid:
    """Collects results."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.results, self._prompts = setting, Results(), Prompts(time.time_ns())

    def run(self, entries: Sequence[Entry], cells: Sequence[Cell], *, is_apart: bool) -> Iterator[Cell]:
        """Runs everything; gives each cell once it is complete."""
        starts = [cell for cell in cells if cell.kind == "start"]
        asked = [cell for cell in cells if cell.kind != "start"]
        for cell in starts:
            self._starts(cell, entries)
            yield cell
        if not asked:
            return
        for group in [[entry] for entry in entries] if is_apart else [list(entries)]:
            with contextlib.ExitStack() as stack:
                processes = dict(self._started(group, asked, stack))
                for cell in asked:
                    self._cell(cell, processes)
                    if not is_apart:
                        yield cell
        if is_apart:
            yield from asked

    def _started(
        self, entries: Iterable[Entry], cells: Sequence[Cell], stack: contextlib.ExitStack
    ) -> Iterator[tuple[str, PeerProcess]]:
        for entry in entries:
            python, script, *words = self.setting.words(entry.contender, entry.path)
            try:
                process = PeerProcess(python, script, *words, env=self.setting.env(entry.contender))
            except (RuntimeError, OSError) as error:
                self._fail(entry.key, cells, str(error))
                continue
            stack.enter_context(process)
            process.sleep()
            say(f"{entry.key}: {process.name} {process.version} is ready")
            yield entry.key, process

    def _fail(self, key: str, cells: Iterable[Cell], why: str) -> None:
        say(f"{key}: {why}")
        for cell in cells:
            self.results[cell.name, key] = Found(error=why)

    def _call(self, cell: Cell, process: PeerProcess) -> float:
        command = cell.command(self._prompts)
        process.wake()
        try:
            with first_in_line(process.process.pid, self.setting.realtime_s):
                return cell.value(process.ask(**command))
        finally:
            process.sleep()

    def _cell(self, cell: Cell, processes: dict[str, PeerProcess]) -> None:
        calls: dict[str, Call] = {}
        for key, process in processes.items():
            load, start = OtherLoad(), time.perf_counter()
            try:
                warm = self._call(cell, process)
            except (RuntimeError, OSError) as error:
                self._fail(key, [cell], str(error))
                continue
            if time.perf_counter() - start > self.setting.budget_s / 2:  # no time for turns
                self.results[cell.name, key] = Found(process.version, Samples([warm], [load.share()]))
                say(f"{key}: {cell.name} {warm:.4g} {cell.unit}, once")
                continue
            calls[key] = self._guarded(cell, key, process)
        if not calls:
            return
        kept = interleave(
            calls, self.setting.repeats, budget_s=self.setting.budget_s, warm=0, pause_s=self.setting.pause_s
        )
        for key, samples in kept.items():
            if (cell.name, key) not in self.results:  # it failed in its turn
                self.results[cell.name, key] = Found(processes[key].version, samples)
                values = ", ".join(f"{value:.4g}" for value in samples.kept().values)
                say(f"{key}: {cell.name} {values} {cell.unit}")

    def _turns(self, calls: dict[str, Call]) -> dict[str, Samples]:
        how = self.setting
        return interleave(
            calls, how.repeats, budget_s=how.budget_s, warm=0, pause_s=how.pause_s, max_rounds=how.max_rounds
        )

    def _guarded(self, cell: Cell, key: str, process: PeerProcess) -> Call:
        """A call whose failure is kept, so that the others go on."""

        def call() -> float:
            if (cell.name, key) not in self.results:
                try:
                    return self._call(cell, process)
                except (RuntimeError, OSError) as error:
                    self._fail(key, [cell], str(error))
            return math.nan

        return call

    def _starts(self, cell: Cell, entries: Sequence[Entry]) -> None:
        calls: dict[str, Call] = {}
        for entry in entries:
            call = self._start_call(entry)
            try:
                seconds = call()
            except (RuntimeError, OSError) as error:
                self._fail(entry.key, [cell], str(error))
                continue
            assert seconds is not None
            if seconds > LONG_START_S:
                self.results[cell.name, entry.key] = Found(samples=Samples([seconds], [0.0]))
            else:
                calls[entry.key] = call
        if not calls:
            return
        found = interleave(
            calls, self.setting.repeats, budget_s=self.setting.budget_s, warm=0, pause_s=self.setting.pause_s
        )
        for key, samples in found.items():
            self.results[cell.name, key] = Found(samples=samples)

    def _start_call(self, entry: Entry) -> Call:
        python, script, *words = self.setting.words(entry.contender, entry.path)
        env = self.setting.env(entry.contender)
        command = [python, str(PEERS / script), *words, "--first"]
        if script == "ours.py":  # what people start
            how = ["Gravity is", "--max-tokens", "1", "--temperature", "0", "--threads", str(self.setting.threads)]
            command = octavo("generate", str(entry.path), *how, "--offline")
        prefix = ["chrt", "-f", "10"] if self.setting.realtime_s else []
        if prefix and self._is_long(entry.key):
            prefix = []
        return lambda: seconds_to_first_output([*prefix, *command], env)

    def _is_long(self, key: str) -> bool:
        return key.startswith("vllm")  # a minute: others must not wait so long


def median(found: Found | None) -> float | None:
    """Of the kept repetitions."""
    if found is None or not found.samples.values:
        return None
    return statistics.median(found.samples.kept().values)
