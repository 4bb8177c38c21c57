"""Rules about C++ sources: sizes, includes, namespaces, and the kernel list against the files."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ci.rule_sets.tree import Tree

MAX_UNIT_LINES = 400
MAX_HEADER_LINES = 200
NATIVE = ("csrc_avx", "csrc_neon", "csrc_hip", "csrc_cuda", "csrc_common")
SOURCES = (".cpp", ".cc", ".cu", ".hip")
FRAMEWORKS = re.compile(r'#\s*include\s*[<"](torch/|ATen/|c10/|pybind11/|cuda|hip/|Python\.h)')
INCLUDE = re.compile(r'#\s*include\s*[<"]([^>"]+)[>"]')
#: what kernels may use of the standard library: no containers, algorithms, strings or streams, whose inline code one
#: level's object would lend to all others
KERNEL_HEADERS = {
    "cstdint",
    "cstddef",
    "cstring",
    "climits",
    "cfloat",
    "type_traits",
    "atomic",
    "immintrin.h",
    "arm_neon.h",
    "arm_sve.h",
}
KERNEL_NAMES = re.compile(
    r"\bstd::(?!memcpy|memset|memmove|memcmp|memchr|size_t|u?int\d+_t|uintptr_t|atomic|memory_order|"
    r"is_\w+|conditional\w*|enable_if\w*|integral_constant|true_type|false_type|remove_\w+|decay\w*|nullptr_t|declval)(\w+)"
)
NAMESPACE = re.compile(r"^\s*namespace\s+octavo::(\w+)", re.MULTILINE)
ROW = re.compile(r"^OCTAVO_KERNEL\((\w+), (\w+),", re.MULTILINE)


def _code(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def level_of(path: str) -> str:
    """`csrc_avx/norm/norm__avx2.cpp` -> avx2; '' for other files."""
    stem = path.rsplit("/", 1)[-1].split(".")[0]
    return stem.rsplit("__", 1)[1] if "__" in stem and path.endswith(SOURCES) else ""


def cpp_sizes(tree: Tree) -> Iterator[str]:
    """Translation units and kernel bodies of at most 400 lines; other shared headers of at most 200, and headers only."""
    for path in tree.select(*NATIVE):
        lines = tree.text(path).count("\n")
        is_shared = path.startswith("csrc_common/")
        if is_shared and path.endswith(SOURCES):
            yield f"{path}: csrc_common holds headers only; put the unit into the folder that builds it"
        limit = (
            MAX_HEADER_LINES if is_shared and path.endswith(".h") and not path.endswith(".inl.h") else MAX_UNIT_LINES
        )
        if path.endswith((*SOURCES, ".h")) and lines > limit:
            yield f"{path}: {lines} lines; at most {limit}; split it"


def includes(tree: Tree) -> Iterator[str]:
    """Only bind.cpp, and the headers that it is made of, know pybind11; GPU headers stay in GPU folders; torch is nowhere."""
    for path in tree.select(*NATIVE):
        text = tree.text(path)
        for found in FRAMEWORKS.finditer(_code(text)):
            what = found[1]
            is_binding = (path.endswith("/bind.cpp") or "/bind/" in path) and what.startswith(("pybind11", "Python"))
            is_gpu = path.startswith(("csrc_hip/", "csrc_cuda/", "csrc_common/gpu/")) and what.startswith(
                ("cuda", "hip")
            )
            if not is_binding and not is_gpu:
                yield f"{path}:{_line(text, found.start())}: includes {what}; only bind.cpp binds, only GPU folders see a GPU"


def kernel_library(tree: Tree) -> Iterator[str]:
    """No containers or algorithms of the standard library where levels differ: kernel units and the bodies they include."""
    for path in tree.select(*NATIVE):
        if not level_of(path) and not path.endswith(".inl.h"):
            continue
        text = _code(tree.text(path))
        for found in KERNEL_NAMES.finditer(text):
            yield f"{path}:{_line(text, found.start())}: std::{found[1]}; kernels use no library code that a level could leak"
        for found in INCLUDE.finditer(text):
            name = found[1]
            is_system = f"<{name}>" in found[0]
            if is_system and name not in KERNEL_HEADERS:
                line = _line(text, found.start())
                yield f"{path}:{line}: includes <{name}>; kernels may include {', '.join(sorted(KERNEL_HEADERS))}"


def namespaces(tree: Tree) -> Iterator[str]:
    """A unit's namespace is its level, a shared body's the macro: two flag sets never share a symbol. (GPU
    kernels share none: each unit is a code object of its own.)"""
    for path in tree.select(*NATIVE, ends=(*SOURCES, ".inl.h")):
        level = level_of(path)
        if not level and not path.endswith(".inl.h"):
            continue
        text = _code(tree.text(path))
        names = [(found[1], _line(text, found.start())) for found in NAMESPACE.finditer(text)]
        due = level or ("gpu" if path.startswith("csrc_common/gpu/") else "OCTAVO_ISA_NS")
        for name, line in names:
            if name not in ("OCTAVO_ISA_NS", due):
                yield f"{path}:{line}: namespace octavo::{name}; octavo::{due} is due"
        if not names and not re.search(r'#\s*include\s*"[^"]+\.inl\.h"', text):
            yield f"{path}: opens no namespace of its level; code outside it could be shared between flag sets"


def kernel_list(tree: Tree) -> Iterator[str]:
    """kernels.inc and the files agree: every row has a unit of its level, every unit a row, no row twice."""
    for folder in NATIVE:
        path = f"{folder}/kernels.inc"
        if path not in tree.paths:
            continue
        units = {
            (unit.rsplit("/", 1)[-1].split("__")[0], level_of(unit)): unit
            for unit in tree.select(folder)
            if level_of(unit)
        }
        used, seen = set(), set()
        for found in ROW.finditer(tree.text(path)):
            op, level = found[1], found[2]
            line = _line(tree.text(path), found.start())
            if (op, level) in seen:
                yield f"{path}:{line}: {op} at {level} is listed twice"
            seen.add((op, level))
            words = op.split(
                "_"
            )  # a family file is named after a word of its ops: norm for rms_norm, linear_int for linear_q4_0
            homes = {
                unit
                for (stem, at), unit in units.items()
                if at == level and (stem == op or stem.split("_")[0] in words)
            }
            used |= homes
            if not homes:
                yield f"{path}:{line}: {op} at {level}: no file {op}__{level}.cpp (or of its family) in {folder}"
        for unit in sorted(set(units.values()) - used):
            yield f"{unit}: no row in {path}; a kernel that is not listed is not built into the choice"


RULES = (cpp_sizes, includes, kernel_library, namespaces, kernel_list)
