"""What qemu-user executed between two marks of a program: every instruction, by its address.

qemu translates a program block by block; `-d in_asm` lists the instructions of a block when it is translated, `-d exec,nochain`
names a block each time it runs. Together they give exact counts, whatever a function calls (memcpy included).
"""

from __future__ import annotations

import subprocess
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

QEMU = "qemu-aarch64-static"
#: what a program that is counted has, each a function
BEGIN, END = "count_begin", "count_end"


class TraceError(RuntimeError):
    """The log is not one that counts can be taken from."""


def regions(log: Iterable[str], begin: int, end: int) -> Iterator[Counter[int]]:
    """Address -> executions for each stretch from a block at `begin` to one at `end`, both left out."""
    blocks: dict[int, list[int]] = {}
    listed: list[int] = []
    runs: Counter[tuple[int, ...]] | None = None
    for line in log:
        if line.startswith("0x"):
            listed.append(int(line[: line.index(":")], 16))
        elif line.startswith("Trace"):
            if listed:
                blocks[listed[0]] = listed
                listed = []
            at = int(line.split("/", 2)[1], 16)
            if at == begin:
                runs = Counter()
            elif at == end:
                if runs is None:
                    raise TraceError("the end of a region without its beginning")
                yield _by_address(runs)
                runs = None
            elif runs is not None:
                if at not in blocks:
                    raise TraceError(f"the block at {at:#x} ran and was not listed: is qemu built with a disassembler?")
                runs[tuple(blocks[at])] += 1
        elif line.startswith("Stopped execution") and runs is not None:
            raise TraceError("a block was left before its end; run again where no signals come")
    if runs is not None:
        raise TraceError("the program ended inside a region")


def _by_address(runs: Counter[tuple[int, ...]]) -> Counter[int]:
    found: Counter[int] = Counter()
    for block, times in runs.items():
        for address in block:
            found[address] += times
    return found


def symbols(program: Path) -> dict[str, int]:
    """Name -> address of the functions of an aarch64 program."""
    listing = subprocess.run(["aarch64-linux-gnu-nm", str(program)], check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in listing.splitlines())
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3 and row[1] in "tTwW"}


@dataclass(frozen=True)
class Executed:
    """What a call executed."""

    by_address: Counter[int]
    num_of_call: int  # instructions that the call itself takes, whatever is called

    @property
    def total(self) -> int:
        """Instructions of what was called."""
        return sum(self.by_address.values()) - self.num_of_call


def count(program: Path, words: Sequence[str], cpu: str = "max") -> Executed:
    """A run of a program whose first region holds a call of nothing, its second that of the function in question."""
    marks = symbols(program)
    command = [QEMU, "-cpu", cpu, "-d", "exec,in_asm,nochain", str(program), *words]
    tail: deque[str] = deque(maxlen=3)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = list(regions(_kept(process.stderr, tail), marks[BEGIN], marks[END]))
    if process.returncode:
        raise TraceError(f"{' '.join(words)}: status {process.returncode}: {''.join(tail)}")
    if len(found) != 2:
        raise TraceError(f"{' '.join(words)}: {len(found)} regions, 2 are due")
    return Executed(found[1], sum(found[0].values()))


def _kept(lines: Iterable[str], tail: deque[str]) -> Iterator[str]:
    for line in lines:
        tail.append(line)
        yield line
