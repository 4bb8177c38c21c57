"""Inner loops of a program, found in its disassembly by what was executed, and what llvm-mca says of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OBJDUMP, MCA = "llvm-objdump-22", "llvm-mca-22"
PACKAGES = {MCA: "llvm-22", OBJDUMP: "llvm-22"}
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S(?:[^/<]|/(?!/))*?)\s*(?:<[^>]*>)?\s*(?://.*)?$")
_BRANCH = re.compile(r"^(b|b\.\w+|cbn?z|tbn?z)\s(?:.*,\s*)?0x([0-9a-f]+)$")
_CALL = re.compile(r"^(bl|blr|ret|br)\b")
# Of llvm-mca's tables: `[4] - V1UnitL:3 V1UnitL01, V1UnitL01, V1UnitL2`, and what an instruction uses before its opcode's name.
_GROUP = re.compile(r"^\[\d+\]\s+- (\w+):(\d+)[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_USES = re.compile(r"^ *\d+ +\d+ +[\d.]+ .* (\w+Unit\S*) +\w+\s+\S.*$", re.MULTILINE)
_USE = re.compile(r"(\w+)(?:\[(?:\d+,)?(\d+)\])?")


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
    """Cycles of one round, and the fewest that its instructions allow: those of the busiest set of units, or of dispatch."""

    cycles: float
    limit: float

    @property
    def share(self) -> float:
        """Of the limit that is reached."""
        return self.limit / self.cycles


def predicted(body: Sequence[str], cpu: str, rounds: int = 300) -> Prediction | None:
    """What LLVM's model of a processor makes of a loop; None where that processor lacks an instruction of it."""
    said = _asked(body, cpu, f"-iterations={rounds}", "-json")
    if said is None:
        return None
    summary = json.loads(said)["CodeRegions"][0]["SummaryView"]
    tables = _asked(body, cpu, "-instruction-tables=full")
    assert tables is not None
    return Prediction(summary["TotalCycles"] / rounds, max(summary["BlockRThroughput"], busiest(tables)))


def _asked(body: Sequence[str], cpu: str, *options: str) -> str | None:
    command = [MCA, "-mtriple=aarch64", f"-mcpu={cpu}", *options]
    done = subprocess.run(command, input="\n".join(assembly(body)), capture_output=True, text=True)
    if "instruction requires" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(f"{MCA}: status {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def busiest(tables: str) -> float:
    """Cycles of a round in which some set of units is busy throughout: the most, over all sets, of what only they can do by how
    many they are (Hall's condition). `tables`: llvm-mca's instruction tables in full. Its own throughput counts a group of units
    (V0 to V3, say) apart from what has a part of it to itself (V0 and V1)."""
    groups = {name: _members(name, int(count), inner) for name, count, inner in _GROUP.findall(tables)}
    work: dict[frozenset[str], float] = {}
    for listed in _USES.findall(tables):
        # A group is listed with all that what it holds is used for: from the smallest on, what is a group's own.
        uses = {groups[name]: float(cycles or 1) for name, cycles in _USE.findall(listed)}
        own: dict[frozenset[str], float] = {}
        for units in sorted(uses, key=len):
            own[units] = uses[units] - sum(cycles for inner, cycles in own.items() if inner < units)
            work[units] = work.get(units, 0.0) + own[units]
    needed = {units: cycles for units, cycles in work.items() if cycles}
    sets, last = set(needed), 0
    while len(sets) > last:
        last = len(sets)
        sets |= {units | other for units in sets for other in needed if units & other}
    return max(
        (sum(cycles for inner, cycles in needed.items() if inner <= units) / len(units) for units in sets), default=0.0
    )


def _members(name: str, count: int, inner: str) -> frozenset[str]:
    """Units of a group: those that it is said to hold, or as many of its own."""
    names = inner.split(", ") if inner else [name] * count
    return frozenset(f"{unit}.{names[:i].count(unit)}" for i, unit in enumerate(names))


def missing() -> str:
    """What to install ('' = nothing)."""
    absent = sorted({package for tool, package in PACKAGES.items() if shutil.which(tool) is None})
    return f"apt install {' '.join(absent)} (from apt.llvm.org where the distribution has none)" if absent else ""
