"""Tables of docs/arm.md, between `<!-- begin NAME: written by COMMAND -->` and `<!-- end NAME -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.common import ROOT

PAGE = ROOT / "docs/arm.md"
GROUPS = {
    "linear_": "products",
    "paged_attention_": "attention",
    "prepare_": "prepare",
    "kv_append_": "kv_append",
}


def written(text: str, tables: Mapping[str, str]) -> str:
    """A page with these tables made anew. KeyError for one that has no place in it."""
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- begin {name}: [^\n]* -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        text, num = pattern.subn(lambda found, table=table: found[1] + table + found[2], text)
        if num != 1:
            raise KeyError(f"{name}: {num} places in the page, one is due")
    return text


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns but the first two hold numbers."""
    lines = [header, ["---" if i < 2 else "---:" for i in range(len(header))], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def counts(results: Iterable[Mapping[str, Any]], shown: Callable[[float], str]) -> dict[str, str]:
    """Name -> table of the counts, a row per kernel and level, a column per shape."""
    levels: dict[str, int] = {}
    by_group: dict[str, dict[tuple[str, str], dict[str, float]]] = {}
    for found in results:
        group = next(name for start, name in GROUPS.items() if found["label"].startswith(start))
        rows = by_group.setdefault(group, {})
        levels.setdefault(found["level"], len(levels))
        rows.setdefault((found["label"], found["level"]), {})[found["column"]] = found["median"]
    tables = {}
    for group, rows in by_group.items():
        columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
        lines = [
            (f"`{label}`", level, *(shown(cells[column]) if column in cells else "" for column in columns))
            for (label, level), cells in sorted(rows.items(), key=lambda row: (row[0][0], levels[row[0][1]]))
        ]
        tables[f"arm_{group}"] = markdown(("op", "level", *columns), lines)
    return tables


def beside(results: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Name -> table of ours beside theirs, a row per kernel, level and number of rows."""
    found_all = list(results)
    versions = ", ".join(dict.fromkeys(str(found["peer_version"]) for found in found_all))
    lines = [
        (
            f"`{found['kernel'].rpartition('__')[0]}`", found["level"], found["column"], f"{found['median']:.3f}",
            f"{found['peer_spread']['median']:.3f}", f"**{found['ratio']:.2f}**", f"`{found['peer']}`",
        )
        for found in found_all
    ]  # fmt: skip
    header = ("op", "level", "shape, rows", "ours", "KleidiAI", "ratio", f"its micro-kernel ({versions})")
    return {"arm_beside": markdown(header, lines)}


def predictions(results: Iterable[Mapping[str, Any]], cpus: Sequence[str]) -> dict[str, str]:
    """Name -> table of what llvm-mca says, a row per loop, a column per processor."""
    loops: dict[tuple[Any, ...], dict[str, str]] = {}
    for found in results:
        key = (found["label"], found["level"], found["column"], found["loop"], found["of_call"], found["instructions"])
        loops.setdefault(key, {})[found["cpu"]] = f"{found['cycles']:.1f} ({found['median']:.0%})"
    lines = {
        (f"`{label}`", level, column, f"{of_call:.0%}", str(instructions), *(cells.get(cpu, "") for cpu in cpus)): None
        for (label, level, column, _, of_call, instructions), cells in loops.items()
    }  # two loops that are alike are one line
    return {"arm_loops": markdown(("op", "level", "shape", "of the call", "instructions", *cpus), lines)}


def write(tables: Mapping[str, str]) -> None:
    """Puts tables into the page."""
    PAGE.write_text(written(PAGE.read_text(), tables))
