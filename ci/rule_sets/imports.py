"""Rules about who may import whom: server -> engine -> models -> layers -> platforms -> quant -> errors, never up.

Imports under `if TYPE_CHECKING` count too: a type that points up is a dependency that points up. The pure parts (scheduler, KV,
requests) reach no tensor library, not even through others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ci.rule_sets.tree import Tree, module_name

_BASE = ("engine.errors",)
_SCHEDULING = (
    "engine.kv",
    "engine.scheduler",
    "engine.request",
    "engine.accept",
    "engine.admission",
    "engine.pace",
    "engine.plan",
    "engine.waiting",
    "engine.sampling_params",
)
#: part -> the parts it may import besides itself; the longest matching row counts. "*" is everything but engine.server.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "engine.errors": (),
    "engine.config": _BASE,
    "quant": _BASE,
    "platforms": ("quant", *_BASE),
    "platforms.doctor": ("platforms", "quant", "engine.config", "engine.memory", *_BASE),
    "engine.text": _BASE,
    "engine.loading": ("quant", *_BASE),
    "engine.layers": ("platforms", *_BASE),
    "engine.models": ("engine.layers", "engine.loading", "platforms", "quant", *_BASE),
    **dict.fromkeys(_SCHEDULING, (*_SCHEDULING, *_BASE)),
    "engine": ("*",),
    "engine.server": ("*", "engine.server"),
}
TENSOR_LIBRARIES = {"numpy", "torch", "numba", "tensorflow", "jax"}
PURE = ("octavo.engine.scheduler", "octavo.engine.request", "octavo.engine.kv")


def _is_within(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def _part_of(module: str) -> str:
    return max((part for part in MAY_IMPORT if _is_within(module, part)), key=len, default="")


def imports_of(tree: Tree, path: str) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import; `from a import b` names a.b where that is a module of ours."""
    modules = {module_name(p) for p in tree.package_files()}
    for node in ast.walk(tree.syntax(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module_name(path).split(".")
                up = node.level - (1 if path.endswith("__init__.py") else 0)
                base = ".".join([*package[: len(package) - up], *([base] if base else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in modules else base


def import_direction(tree: Tree) -> Iterator[str]:
    """Imports point down the chain."""
    for path in tree.select("engine", "platforms", "quant", ends=".py"):
        part = _part_of(module_name(path).removeprefix("octavo."))
        for line, target in imports_of(tree, path):
            if not target.startswith("octavo."):
                continue
            short = target.removeprefix("octavo.")
            allowed = (part, *MAY_IMPORT[part])
            is_ok = any(_is_within(short, other) for other in allowed if other != "*")
            if "*" in allowed and not _is_within(short, "engine.server"):
                is_ok = True
            if part == "engine" and _is_within(short, "engine.server"):
                is_ok = False
            if not is_ok and "." in short:
                names = ", ".join(name for name in allowed if name) or "nothing"
                yield f"{path}:{line}: {part} imports {target}; it may import {names}"


def pure_parts(tree: Tree) -> Iterator[str]:
    """Scheduler, KV and requests import no tensor library, directly or through others."""
    files = {module_name(path): path for path in tree.package_files()}
    for start in sorted(name for name in files if any(_is_within(name, part) for part in PURE)):
        seen, waiting = {start: ""}, [start]
        while waiting:
            module = waiting.pop()
            for line, target in imports_of(tree, files[module]):
                if target.split(".")[0] in TENSOR_LIBRARIES:
                    way = f" through {module}" if module != start else ""
                    yield f"{files[module]}:{line}: {start} imports {target}{way}; it must run without tensors"
                elif target in files and target not in seen:
                    seen[target] = module
                    waiting.append(target)


RULES = (import_direction, pure_parts)
