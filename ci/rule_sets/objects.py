"""Rules about built objects, read with nm and objdump: what one level's code may share, and what a baseline object may hold.

A weak symbol outside its level's namespace can be kept from any object that has it: code built for AVX-512 would then run on
every processor. Baseline objects (bindings, registry, feature test, scalar kernels) are run before or without any feature
test, so no VEX, EVEX or AMX instruction may be in them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ci.rule_sets.cpp import ROW
from ci.rule_sets.tree import Tree

BASELINE = ("bind", "registry", "cpu_features")
KERNEL = re.compile(r"^octavo::(\w+)::(\w+)\(void const\*, octavo::Step const&, octavo::Lane const&\)$")
#: VEX and EVEX mnemonics begin with v (but for four of the baseline's own), AMX's with tile or td
NEW_CODE = re.compile(
    r"^(v(?!erw|err|mcall|mmcall)\w+|tile\w+|tdp\w+|ldtilecfg|sttilecfg|k(mov|or|and|xor|not|add|unpck|shift)\w+|"
    r"shlx|shrx|sarx|rorx|mulx|pdep|pext|bzhi|andn|bextr|blsr|blsi|blsmsk|tzcnt|lzcnt)$"
)


def missing_tools() -> str:
    """Why the objects cannot be read here; '' if they can."""
    missing = [tool for tool in ("nm", "objdump") if not shutil.which(tool)]
    return f"{', '.join(missing)} not installed (Debian: apt install binutils)" if missing else ""


def newest_build(root: Path) -> Path | None:
    """The newest ordinary build folder that holds objects, or None; sanitizer builds hold other code.

    A build from before the last change of kernels.inc says nothing about the sources of today.
    """
    found = [folder for folder in root.glob("build/*/CMakeFiles/_avx.dir/csrc_avx") if "asan" not in folder.parts]
    if missing_tools() or not found:
        return None
    newest = max(found, key=lambda folder: folder.stat().st_mtime)
    changed = (root / "csrc_avx/kernels.inc").stat().st_mtime
    registry = newest / "registry.cpp.o"
    if registry.exists() and registry.stat().st_mtime < changed:
        return None
    return newest.parents[2]


def _objects(root: Path) -> list[Path]:
    """Objects of the newest build whose sources are still there."""
    build = newest_build(root)
    if build is None:
        return []
    folders = [build / "CMakeFiles" / f"{target}.dir" for target in ("_avx", "_avx_kernels")]
    objects = [(folder, obj) for folder in folders for obj in sorted(folder.rglob("*.cpp.o"))]
    return [obj for folder, obj in objects if (root / obj.relative_to(folder).with_suffix("")).exists()]


def _level(obj: Path) -> str:
    stem = obj.name.split(".")[0]
    return stem.rsplit("__", 1)[1] if "__" in stem else ""


def _symbols(obj: Path) -> Iterator[tuple[str, str]]:
    lines = subprocess.run(["nm", "-C", "--defined-only", str(obj)], check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        _, kind, name = line.split(" ", 2)
        yield kind, name


def weak_symbols(tree: Tree) -> Iterator[str]:
    """An object of one level defines weak symbols in its own namespace only."""
    for obj in _objects(tree.root):
        level = _level(obj)
        if not level or level == "scalar":
            continue  # the baseline's symbols may be kept for all
        for kind, name in _symbols(obj):
            if kind in "WVu" and f"octavo::{level}::" not in name and not name.startswith("DW.ref."):  # no code
                yield f"{obj.name}: weak symbol {name} outside octavo::{level}; force it inline or move it into the namespace"


def exported_kernels(tree: Tree) -> Iterator[str]:
    """Every function with a kernel's signature is a row of kernels.inc, in an object of its level, and the other way round."""
    objects = _objects(tree.root)
    if not objects:
        return
    rows = {(found[2], found[1]) for found in ROW.finditer(tree.text("csrc_avx/kernels.inc"))}
    built: dict[tuple[str, str], str] = {}
    for obj in objects:
        for kind, name in _symbols(obj):
            found = KERNEL.match(name)
            if not found or kind != "T":
                continue
            key = (found[1], found[2])
            built[key] = obj.name
            if found[1] != _level(obj):
                yield f"{obj.name}: defines {name}, a kernel of another level"
            if key not in rows:
                yield f"{obj.name}: {found[2]} at {found[1]} has no row in csrc_avx/kernels.inc"
    for level, op in sorted(rows - set(built)):
        yield f"csrc_avx/kernels.inc: {op} at {level} is in no built object; build again or write it"


def baseline_instructions(tree: Tree) -> Iterator[str]:
    """Baseline objects run on every x86-64-v2 processor."""
    for obj in _objects(tree.root):
        if _level(obj) != "scalar" and obj.name.split(".")[0] not in BASELINE:
            continue
        found = new_instructions(obj)
        if found:
            yield f"{obj.name}: holds {', '.join(found[:5])}; baseline objects are built for x86-64-v2 alone"


def new_instructions(obj: Path) -> list[str]:
    """Mnemonics of an object that x86-64-v2 lacks, sorted."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(obj)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = {
        parts[1].split()[0] for line in listing.splitlines() if len(parts := line.split("\t")) > 1 and parts[1].strip()
    }
    return sorted(name for name in names if NEW_CODE.match(name))


RULES = (weak_symbols, exported_kernels, baseline_instructions)
