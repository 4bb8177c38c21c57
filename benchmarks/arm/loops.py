"""Inner loops of a program, found in its disassembly by what was executed, and what llvm-mca says of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OBJDUMP, MCA = "llvm-objdump-22", "llvm-mca-22"
PACKAGES = {MCA: "llvm-22", OBJDUMP: "llvm-22"}
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S(?:[^/<]|/(?!/))*?)\s*(?:<[^>]*>)?\s*(?://.*)?$")
_BRANCH = re.compile(r"^(b|b\.\w+|cbn?z|tbn?z)\s(?:.*,\s*)?0x([0-9a-f]+)$")
_CALL = re.compile(r"^(bl|blr|ret|br)\b")


@dataclass(frozen=True)
class Loop:
    """An innermost loop. `body`: the instructions that at least half of its rounds execute."""

    first: int
    last: int
    rounds: int
    executed: int  # instructions, in all rounds
    body: tuple[str, ...]


def disassembly(program: Path) -> dict[int, str]:
    """Address -> instruction."""
    text = subprocess.run(
        [OBJDUMP, "-d", "--no-show-raw-insn", str(program)], check=True, capture_output=True, text=True
    ).stdout
    return parsed(text.splitlines())


def parsed(lines: Iterable[str]) -> dict[int, str]:
    """Address -> instruction, of objdump's lines; spaces made one."""
    found = (_LINE.match(line) for line in lines)
    return {int(line[1], 16): " ".join(line[2].split()) for line in found if line}


def inner_loops(code: Mapping[int, str], executed: Mapping[int, int]) -> list[Loop]:
    """Executed loops that hold no other, those that execute most first.

    A loop is what lies between an executed branch and its target before it. Of branches to one target the farthest is taken, of
    loops that overlap the one that executes most; calls keep a loop from being an inner one, as what they reach counts elsewhere.
    """
    spans: dict[int, int] = {}
    for address, text in code.items():
        branch = _BRANCH.match(text)
        if not branch or not executed.get(address):
            continue
        target = int(branch[2], 16)
        if target <= address and executed.get(target, 0) > 1:
            spans[target] = max(spans.get(target, 0), address)
    inner = [
        (first, last)
        for first, last in spans.items()
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in spans.items())
    ]
    loops = [loop for first, last in inner if (loop := _loop(code, executed, first, last)) is not None]
    kept: list[Loop] = []
    for loop in sorted(loops, key=lambda loop: -loop.executed):
        if not any(loop.first <= other.last and other.first <= loop.last for other in kept):
            kept.append(loop)
    return kept


def _loop(code: Mapping[int, str], executed: Mapping[int, int], first: int, last: int) -> Loop | None:
    addresses = [at for at in range(first, last + 4, 4) if at in code]
    rounds = executed[first]
    body = tuple(code[at] for at in addresses if 2 * executed.get(at, 0) >= rounds)
    if any(_CALL.match(text) for text in body):
        return None
    return Loop(first, last, rounds, sum(executed.get(at, 0) for at in addresses), body)


def assembly(body: Sequence[str]) -> Iterator[str]:
    """A loop's body as llvm-mca takes it: where branches and addresses lead does not matter."""
    for text in body:
        branch = _BRANCH.match(text)
        yield f"{text[: text.rindex('0x')]}#64" if branch else re.sub(r"^(adrp? \w+), .*", r"\1, #0", text)


@dataclass(frozen=True)
class Prediction:
    """Cycles of one round, and the fewest that its instructions allow: those of the busiest kind of unit, or of dispatch."""

    cycles: float
    limit: float

    @property
    def share(self) -> float:
        """Of the limit that is reached."""
        return self.limit / self.cycles


def predicted(body: Sequence[str], cpu: str, rounds: int = 300) -> Prediction | None:
    """What LLVM's model of a processor makes of a loop; None where that processor lacks an instruction of it."""
    command = [MCA, "-mtriple=aarch64", f"-mcpu={cpu}", f"-iterations={rounds}", "-json"]
    done = subprocess.run(command, input="\n".join(assembly(body)), capture_output=True, text=True)
    if "instruction requires" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(f"{MCA}: status {done.returncode}: {done.stderr[-500:]}")
    said = json.loads(done.stdout)
    summary = said["CodeRegions"][0]["SummaryView"]
    return Prediction(summary["TotalCycles"] / rounds, max(summary["BlockRThroughput"], busiest(said)))


def busiest(said: dict[str, Any]) -> float:
    """Cycles of a round in which all units of one kind (V0 to V3, say) are busy, or those that some instructions have to
    themselves (V0 and V1). llvm-mca's own throughput counts a group of units apart from what uses a part of it."""
    region, names = said["CodeRegions"][0], said["TargetInfo"]["Resources"]
    kinds = [re.match(r"\w+?(?=\d*(\.|$))", name)[0] for name in names]  # type: ignore[index]
    uses: list[dict[int, float]] = [{} for _ in (*region["Instructions"], "the sum of all")]  # unit -> cycles
    for use in region["ResourcePressureView"]["ResourcePressureInfo"]:
        uses[use["InstructionIndex"]][use["ResourceIndex"]] = use["ResourceUsage"]
    total = dict.fromkeys(kinds, 0.0)
    for unit, cycles in uses.pop().items():
        total[kinds[unit]] += cycles
    parts = []
    for units, info in zip(uses, region["InstructionInfoView"]["InstructionList"], strict=True):
        alone, cycles = info["RThroughput"], sum(units.values())
        if len({kinds[unit] for unit in units}) == 1 and alone and len(units) >= round(cycles / alone):
            parts.append((frozenset(units), cycles))  # was seen on as many units as it may use
    bounds = [cycles / kinds.count(kind) for kind, cycles in total.items()]
    bounds += [sum(cycles for inner, cycles in parts if inner <= units) / len(units) for units, _ in parts]
    return max(bounds)


def missing() -> str:
    """What to install ('' = nothing)."""
    absent = sorted({package for tool, package in PACKAGES.items() if shutil.which(tool) is None})
    return f"apt install {' '.join(absent)} (from apt.llvm.org where the distribution has none)" if absent else ""
