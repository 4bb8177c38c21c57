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
from dataclasses import dataclass
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
#: what Armv8.0 lacks: dot and matrix products, bfloat16, float16 arithmetic and FMLAL, LSE atomics, complex and rounding forms,
#: RCPC loads; and any use of SVE's registers
NEW_ARM_CODE = re.compile(
    r"^([su]+dot|[su]*mmla|bf(dot|mmla|mlal[bt]|cvtn?2?)|fmlal\w*|fmlsl\w*|fcmla|fcadd|sqrdml[as]h|fjcvtzs|frint(32|64)\w|ldapr\w*|"
    r"(ld|st)(add|clr|eor|set|smax|smin|umax|umin)[alb]*h?|swp[alb]*h?|casp?[alb]*h?|eor3|bcax|rax1|xar)$"
)
NEW_ARM_OPERANDS = re.compile(r"\bz\d+\.|\bp\d+/[mz]|\bv\d+\.[48]h\b")
#: of float operations on .4h and .8h vectors only: integer ones and conversions are old
HALF_FLOATS = re.compile(r"^f(?!cvt|mov)\w+$")


@dataclass(frozen=True)
class Family:
    """The objects of one module, the tools that read them, and the level that every processor has."""

    module: str
    folder: str
    tools: str  # what stands before nm and objdump
    level: str
    baseline: str
    package: str

    @property
    def kernels(self) -> str:
        return f"{self.folder}/kernels.inc"


X86 = Family("_avx", "csrc_avx", "", "scalar", "x86-64-v2", "binutils")
ARM = Family("_neon", "csrc_neon", "aarch64-linux-gnu-", "neon", "Armv8.0", "binutils-aarch64-linux-gnu")
FAMILIES = (X86, ARM)


def missing_tools(family: Family = X86) -> str:
    """Why the objects cannot be read here; '' if they can."""
    missing = [tool for tool in (f"{family.tools}nm", f"{family.tools}objdump") if not shutil.which(tool)]
    return f"{', '.join(missing)} not installed (Debian: apt install {family.package})" if missing else ""


def newest_build(root: Path, family: Family = X86) -> Path | None:
    """The newest ordinary build folder that holds objects, or None; sanitizer builds hold other code.

    A build from before the last change of kernels.inc says nothing about the sources of today.
    """
    places = [*root.glob("build/*/CMakeFiles"), *root.glob("build/*/build/CMakeFiles")]
    found = [place / f"{family.module}.dir" / family.folder for place in places if "asan" not in place.parts]
    found = [folder for folder in found if folder.is_dir()]
    if missing_tools(family) or not found:
        return None
    newest = max(found, key=lambda folder: folder.stat().st_mtime)
    changed = (root / family.kernels).stat().st_mtime
    registry = newest / "registry.cpp.o"
    if registry.exists() and registry.stat().st_mtime < changed:
        return None
    return newest.parents[2]


def _objects(root: Path, family: Family) -> list[Path]:
    """Objects of the newest build whose sources are still there."""
    build = newest_build(root, family)
    if build is None:
        return []
    targets = (family.module, f"{family.module}_kernels")
    folders = [build / "CMakeFiles" / f"{target}.dir" for target in targets]
    objects = [(folder, obj) for folder in folders for obj in sorted(folder.rglob("*.cpp.o"))]
    return [obj for folder, obj in objects if (root / obj.relative_to(folder).with_suffix("")).exists()]


def _level(obj: Path) -> str:
    stem = obj.name.split(".")[0]
    return stem.rsplit("__", 1)[1] if "__" in stem else ""


def _symbols(obj: Path, family: Family) -> Iterator[tuple[str, str]]:
    command = [f"{family.tools}nm", "-C", "--defined-only", str(obj)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        _, kind, name = line.split(" ", 2)
        yield kind, name


def weak_symbols(tree: Tree) -> Iterator[str]:
    """An object of one level defines weak symbols in its own namespace only."""
    for family in FAMILIES:
        for obj in _objects(tree.root, family):
            level = _level(obj)
            if not level or level == family.level:
                continue  # the baseline's symbols may be kept for all
            for kind, name in _symbols(obj, family):
                if kind in "WVu" and f"octavo::{level}::" not in name and not name.startswith("DW.ref."):  # no code
                    yield f"{obj.name}: weak symbol {name} outside octavo::{level}; force it inline or move it into the namespace"


def exported_kernels(tree: Tree) -> Iterator[str]:
    """Every function with a kernel's signature is a row of kernels.inc, in an object of its level, and the other way round."""
    for family in FAMILIES:
        yield from _exported_kernels(tree, family)


def _exported_kernels(tree: Tree, family: Family) -> Iterator[str]:
    objects = _objects(tree.root, family)
    if not objects:
        return
    rows = {(found[2], found[1]) for found in ROW.finditer(tree.text(family.kernels))}
    built: dict[tuple[str, str], str] = {}
    for obj in objects:
        for kind, name in _symbols(obj, family):
            found = KERNEL.match(name)
            if not found or kind != "T":
                continue
            key = (found[1], found[2])
            built[key] = obj.name
            if found[1] != _level(obj):
                yield f"{obj.name}: defines {name}, a kernel of another level"
            if key not in rows:
                yield f"{obj.name}: {found[2]} at {found[1]} has no row in {family.kernels}"
    for level, op in sorted(rows - set(built)):
        yield f"{family.kernels}: {op} at {level} is in no built object; build again or write it"


def baseline_instructions(tree: Tree) -> Iterator[str]:
    """Baseline objects run on every processor of their family: x86-64-v2, Armv8.0."""
    for family in FAMILIES:
        for obj in _objects(tree.root, family):
            if _level(obj) != family.level and obj.name.split(".")[0] not in BASELINE:
                continue
            found = new_instructions(obj, family)
            if found:
                yield f"{obj.name}: holds {', '.join(found[:5])}; baseline objects are built for {family.baseline} alone"


def new_instructions(obj: Path, family: Family = X86) -> list[str]:
    """Mnemonics of an object that its family's baseline lacks, sorted."""
    command = [f"{family.tools}objdump", "-d", "--no-show-raw-insn", str(obj)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = (line.split("\t", 1)[1] for line in listing.splitlines() if "\t" in line)
    words = {tuple(line.split(maxsplit=1)) for line in lines if line.strip()}
    is_new = _is_new_on_arm if family is ARM else lambda name, _: bool(NEW_CODE.match(name))
    return sorted({name for name, *rest in words if is_new(name, " ".join(rest))})


def _is_new_on_arm(name: str, operands: str) -> bool:
    if NEW_ARM_CODE.match(name):
        return True
    found = NEW_ARM_OPERANDS.search(operands)
    return bool(found) and (not found[0].startswith("v") or bool(HALF_FLOATS.match(name)))


RULES = (weak_symbols, exported_kernels, baseline_instructions)
