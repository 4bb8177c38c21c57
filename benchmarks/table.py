"""Octavo and its peers, cell by cell: prefill, decode with 1 to 32 requests, a shared prefix, start to first token.

    octavo bench table -- --models-folder MODELS --peers-folder PEERS [--model smollm2] [--width 8] [--cells decode.1 shared]

Peers and models are installed and made once, as peers/README.md says. A row is a cell of one model and weight width: our
median, the best peer's and the ratio. The table printed at the end shows every contender as median (min-max, n), times (ours
against the best peer; above 1 we are faster) and the share of the machine's limit: a step reads its weights and caches
once at the measured read bandwidth, or multiplies at the measured peak of the chip's best instruction, whichever takes
longer. Contenders take turns; repetitions in which others used more than 6 % of the machine are dropped. Cells are described
in cells.py, contenders in contenders.py.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import USUAL as CELLS
from benchmarks.cells import Cell, Lengths, parse_cell
from benchmarks.common import Peer, machine, parser, report, row, say, significant
from benchmarks.contenders import OURS, PEERS_HOME, WIDTHS, chosen
from benchmarks.contenders import USUAL as CONTENDERS
from benchmarks.grid import Entry, Found, Grid, Results, Setting, median
from benchmarks.limits import LEVELS, best_ops, measured
from benchmarks.models import HOME, place, size_bytes
from benchmarks.shapes import SHAPES, Shape

ROOM_BYTES = 2 << 30  # that each contender may take beside twice its file


def best_of(results: Results, cell: Cell, keys: Sequence[str]) -> str:
    """The contender with the best median in a cell; '' if none has one."""
    found = {key: median(results.get((cell.name, key))) for key in keys}
    ranked = [(value, key) for key, value in found.items() if value is not None]
    if not ranked:
        return ""
    return (max(ranked) if cell.better == "higher" else min(ranked))[1]


def times_as_fast(cell: Cell, ours: float, theirs: float) -> float:
    """Above 1 if we are faster, whatever the unit."""
    return ours / theirs if cell.better == "higher" else theirs / ours


class Sheet:
    """One model at one weight width: its contenders, and what is printed of them."""

    def __init__(
        self, shape: Shape, width: str, entries: Sequence[Entry], limits: dict[str, float], level: str
    ) -> None:
        self.shape, self.width, self.entries, self.level = shape, width, entries, level
        self.read, self.ops = limits.get("read", 0.0), best_ops(limits, width, level) if limits else 0.0
        self.bytes = {entry.key: size_bytes(entry.path) for entry in entries}
        self.ours = [entry.key for entry in entries if entry.contender.is_ours]
        self.peers = [entry.key for entry in entries if not entry.contender.is_ours]

    def share(self, cell: Cell, key: str, value: float | None) -> float | None:
        """Of the machine's limit, as far as it is known."""
        limit = cell.limit(self.shape, self.bytes[key], self.read, self.ops)
        return None if limit is None or value is None else value / limit

    def row(self, cell: Cell, results: Results, threads: int) -> dict[str, Any] | None:
        """The cell as a result; None if nobody has a value in it. Without ours the best peer's values are the row's."""
        ours, theirs = (best_of(results, cell, keys) for keys in (self.ours, self.peers))
        if not (ours or theirs):
            return None
        found = results[cell.name, ours or theirs]
        peer = None
        if ours and theirs:
            other = results[cell.name, theirs]
            peer = Peer(theirs, other.version, other.samples)
        name = f"table.{self.shape.name}.{self.width}.{cell.name}"
        more: dict[str, Any] = {"by": ours or theirs, "level": self.level}
        if peer is not None:
            pair = [median(results[cell.name, key]) for key in (ours, theirs)]
            more["times"] = significant(times_as_fast(cell, *pair), 4)  # type: ignore[arg-type]
        more["all"] = {key: self._one(cell, key, results.get((cell.name, key))) for key in self.ours + self.peers}
        return row(name, cell.unit, found.samples, better=cell.better, peer=peer, threads=threads, **more)

    def _one(self, cell: Cell, key: str, found: Found | None) -> dict[str, Any]:
        if found is None or not found.samples.values:
            return {"error": found.error if found else "not run"}
        kept = found.samples.kept()
        out: dict[str, Any] = {"min": min(kept.values), "median": median(found), "max": max(kept.values)}
        out = {name: significant(value) for name, value in out.items()} | {"n": len(kept.values)}
        share = self.share(cell, key, median(found))
        if share is not None:
            out["of_limit"] = significant(share, 3)
        if kept.other and max(kept.other) > 0.06:
            out["other_load"] = round(max(kept.other), 3)
        return out | ({"version": found.version} if found.version else {})


def shown(value: float) -> str:
    """Three digits, whole numbers from 1000 up."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def cell_text(one: dict[str, Any]) -> str:
    """`**12.1** (11-13, n=5) 40%`; ! where others were busy; - where there is nothing."""
    if "median" not in one:
        return "-"
    text = f"**{shown(one['median'])}** ({shown(one['min'])}-{shown(one['max'])}, n={one['n']})"
    text += f" {one['of_limit']:.0%}" if "of_limit" in one else ""
    return text + (" !" if "other_load" in one else "")


def markdown(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """The rows of one sheet as a Markdown table: a line for each cell, a column for each contender."""
    keys = list(rows[0]["all"])
    lines = [f"### {title}", "", "| cell | unit | " + " | ".join(keys) + " | best peer | times |"]
    lines.append("|" + " --- |" * (len(keys) + 4))
    for made in rows:
        cells = [cell_text(made["all"][key]) for key in keys]
        best = made.get("peer", "") if "times" in made else ""
        ratio = f"**{made['times']:.2f}**" if "times" in made else "-"
        name = made["name"].split(".", 3)[3]
        lines.append(f"| {name} | {made['unit']} | " + " | ".join(cells) + f" | {best} | {ratio} |")
    return "\n".join(lines)


def available_bytes() -> int:
    """Memory that may be taken without swapping."""
    with open("/proc/meminfo") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable")), 0)


def entries_of(args: argparse.Namespace, model: str, width: str) -> list[Entry]:
    """Contenders whose environment and file are there; the others are named."""
    out = []
    for contender in chosen(args.contenders, width, args.level):
        path = place(args.models_folder, model, contender.form)
        python = Path(contender.engine.python(args.peers_folder))
        if not path.exists():
            say(f"{contender.key}: there is no {path}; make it with octavo bench models")
        elif not python.exists():
            say(
                f"{contender.key}: there is no {python}; run benchmarks/peers/install {args.peers_folder} {python.parts[-3]}"
            )
        else:
            out.append(Entry(contender, path))
    return out


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows, each when it is complete; tables go to stderr."""
    lengths = Lengths(*args.decode, *args.shared)
    cells = [parse_cell(text, lengths) for text in args.cells]
    limits: dict[str, float] = {}
    try:
        limits = measured(args.threads, is_realtime=args.realtime > 0)
    except RuntimeError as error:
        say(str(error))
    saved: list[dict[str, Any]] = []
    for model in args.model:
        for width in args.width:
            entries = entries_of(args, model, width)
            if not entries:
                continue
            sheet = Sheet(SHAPES[model], width, entries, limits, args.level)
            setting = Setting(args.peers_folder, args.threads, args.repeats, args.budget, args.level, args.realtime)
            grid = Grid(setting)
            is_apart = args.apart or sum(2 * size + ROOM_BYTES for size in sheet.bytes.values()) > available_bytes()
            made = []
            for cell in grid.run(entries, cells, is_apart=is_apart):
                found = sheet.row(cell, grid.results, args.threads)
                if found is not None:
                    made.append(found)
                    yield found
            if made:
                say(
                    "\n"
                    + markdown(f"{model}, {width}-bit weights" + (f", {args.level}" * bool(args.level)), made)
                    + "\n"
                )
            saved += made
            if args.json:
                args.json.write_text(
                    json.dumps({"machine": machine(args.threads), "limits": limits, "rows": saved}, indent=1)
                )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", nargs="+", choices=SHAPES, default=["smollm2"])
    options.add_argument("--width", nargs="+", choices=WIDTHS, default=["8"], help="bits of a weight")
    options.add_argument("--cells", nargs="+", metavar="CELL", default=list(CELLS))
    options.add_argument(
        "--peers",
        nargs="+",
        metavar="NAME[:FORM]",
        default=[n for n in CONTENDERS if n != OURS],
        help="to run beside ours",
    )
    options.add_argument(
        "--ours", nargs="*", metavar="FORM", help="forms of ours (default: the usual one of the width)"
    )
    options.add_argument("--level", choices=[level for level in LEVELS if level], default="", help="keep engines at it")
    options.add_argument("--models-folder", type=Path, default=HOME, help="default %(default)s")
    options.add_argument("--peers-folder", type=Path, default=PEERS_HOME, help="default %(default)s")
    options.add_argument("--decode", nargs=2, type=int, metavar=("PROMPT", "NEW"), default=[128, 64])
    options.add_argument("--shared", nargs=2, type=int, metavar=("OWN", "NEW"), default=[64, 64])
    options.add_argument("--apart", action="store_true", help="one engine in memory at a time")
    about = "seconds of every repetition at real-time priority, on a machine that others use (needs root)"
    options.add_argument("--realtime", type=float, metavar="S", default=0.0, help=about)
    options.add_argument("--json", type=Path, metavar="FILE", help="everything measured, in one file")
    args = options.parse_args()
    ours = [OURS] if args.ours is None else [f"{OURS}:{form}" for form in args.ours]
    args.contenders = [*ours, *args.peers]
    try:
        for text in args.cells:
            parse_cell(text, Lengths())
        chosen(args.contenders, "8")
    except ValueError as error:
        options.error(str(error))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started, too
    report(results(args), args, "table")


if __name__ == "__main__":
    main()
