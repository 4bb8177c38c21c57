"""Cells of GPU code as it is compiled: every kernel for every chip, what each takes, and which are not used for spilling."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ci.gpu import TARGETS, build, missing
from ci.gpu_resources import crowded, reader, resources

COMPILED = {f"{target.kind}-{target.arch}": target for target in TARGETS if target.kind != "host"}


def cells() -> list[dict[str, Any]]:
    """One per chip, with the reason where it cannot be compiled for here."""
    return [
        {
            "name": name,
            "platform": target.kind,
            "level": target.arch,
            "how": "compiled",
            "reason": _missing(target.kind),
        }
        for name, target in COMPILED.items()
    ]


def _missing(kind: str) -> str:
    return missing(kind) or ("apt install llvm-22" if kind == "rocm" and reader() is None else "")


def run_cell(name: str) -> dict[str, Any]:
    """Compiles; per family how many kernels are as they should be. `resources` holds what each takes, `code_bytes` their size,
    `left_out` what speaks against kernels that are not in the chip's table."""
    target = COMPILED[name]
    try:
        folder = build(target)
    except RuntimeError as error:
        return {"error": str(error)[-400:]}
    listed = {f"{row['op']}__{row['level']}" for row in json.loads((folder / "kernels.json").read_text())}
    found = [kernel for kernel in resources(target) if kernel.kernel in listed]
    left_out = [kernel.complaint for kernel in resources(target) if kernel.kernel not in listed]
    ops: dict[str, dict[str, Any]] = {}
    for kernel in found:
        op = ops.setdefault(
            kernel.kernel.rsplit("__", 1)[0].partition("_")[0],
            {"passed": 0, "failed": 0, "max_error": 0.0, "kernels": [], "first_failure": ""},
        )
        complaint = kernel.complaint or crowded(kernel, target.arch)
        op["failed" if complaint else "passed"] += 1
        op["kernels"].append(kernel.kernel)
        op["first_failure"] = op["first_failure"] or complaint
    code_bytes = sum(file.stat().st_size for file in folder.glob("*.co"))
    return {
        "compiled": ops, "ops": {}, "resources": [asdict(kernel) for kernel in found], "code_bytes": code_bytes,
        "left_out": left_out,
    }  # fmt: skip
