"""What this machine has and what Octavo makes of it, as plain data: chip, levels, kernels with every refusal, limits, versions.

`report` never raises for a machine that is odd: a section that cannot be made says why under "problem".
Sizes in bytes, times in seconds, CPU quota in cores. The API key is never shown.
"""

from __future__ import annotations

import os
import platform as machine_info
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from octavo.engine.config import Environment, read_environment, shown_variables
from octavo.engine.errors import OctavoError
from octavo.engine.memory import MemoryPlan, VectorPlan
from octavo.platforms.chip import read_cpuinfo
from octavo.platforms.cpu.packed_cache import damaged
from octavo.platforms.gpu.report import report as gpus
from octavo.platforms.limits import Limits, read_limits
from octavo.platforms.ops import NUMERICS_VERSION
from octavo.platforms.registry import choose_platform
from octavo.platforms.types import Variant

PACKAGES = ("numpy", "tokenizers", "jinja2", "msgspec", "granian", "rich", "blake3", "huggingface-hub")
#: what the kernels' feature groups rest on, as /proc/cpuinfo spells it
FLAGS = (
    *(
        "ssse3",
        "sse4_2",
        "avx",
        "f16c",
        "fma",
        "bmi2",
        "avx2",
        "avx_vnni",
        "avx512f",
        "avx512bw",
        "avx512dq",
        "avx512vl",
    ),
    *("avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)


def report(
    *,
    memory: MemoryPlan | VectorPlan | None = None,
    device: str | None = None,
    is_testing_all: bool = False,
    root: Path = Path("/"),
) -> dict[str, Any]:
    """Everything, JSON-able. `memory`: the plan of a model, if one was given; `device`: what --device said; `is_testing_all` runs
    the self-test of every level that can run here, not only of the chosen kernels, and reads all packed weights."""
    start = time.process_time()
    limits = read_limits(root)
    found: dict[str, Any] = {"octavo": {"version": _version("octavo"), "numerics_version": NUMERICS_VERSION}}
    found["chip"] = _chip(limits, root)
    try:
        environment = read_environment()
    except OctavoError as error:
        environment = Environment()
        found["environment"] = shown_variables() | {"problem": str(error)}
    else:
        found["environment"] = shown_variables()
    found |= _platform(environment, limits, device, is_testing_all=is_testing_all)
    found["gpus"] = gpus()
    found["limits"] = _limits(limits)
    found["memory"] = None if memory is None else {**asdict(memory), "kv_bytes": memory.kv_bytes, "plan": memory.line()}
    found["cache"] = _cache(environment.cache, is_read=is_testing_all)
    found["versions"] = _versions()
    found["seconds_cpu"] = round(time.process_time() - start, 4)
    return found


# -- sections ----------------------------------------------------------------------------------------------------------
def _chip(limits: Limits, root: Path) -> dict[str, Any]:
    fields = read_cpuinfo(root)
    has = set((fields.get("flags") or fields.get("Features") or "").split())
    return {
        "machine": machine_info.machine(),
        "vendor": fields.get("vendor_id") or fields.get("CPU implementer") or "",
        "model": fields.get("model name") or fields.get("CPU part") or machine_info.processor(),
        "family": "/".join(fields[key] for key in ("cpu family", "model", "stepping") if key in fields),
        "cores": limits.topology.num_cores,
        "cpus": limits.num_online_cpus,
        "l1d_bytes": limits.topology.l1d_bytes,
        "l2_bytes": limits.topology.l2_bytes,
        "l3_bytes": limits.topology.l3_bytes,
        "features": [flag for flag in FLAGS if flag in has],
    }


def _platform(environment: Environment, limits: Limits, device: str | None, *, is_testing_all: bool) -> dict[str, Any]:
    num_threads = environment.threads or limits.num_compute_threads
    try:
        chosen = choose_platform(device or environment.platform, num_threads, environment.isa, environment.numerics)
    except OctavoError as error:
        return {"platform": {"problem": str(error)}}
    platform = chosen.platform
    out: dict[str, Any] = {
        "platform": {
            "name": platform.name,
            "threads": platform.num_threads,
            "refused": [{"platform": name, "reason": reason} for name, reason in chosen.refused],
        }
    }
    try:
        out |= platform.diagnose(is_testing_all=is_testing_all)
        out["kernels"] = kernel_rows(platform.variants())
    finally:
        platform.close()
    return out


def kernel_rows(variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """One row per op: the kernel for few rows, for many where it is another, and every other with the reason against it. Where
    there are more than two, `bands` says from how many rows on each runs."""
    rows: dict[str, dict[str, Any]] = {}
    bands: dict[str, list[tuple[int, str]]] = {}
    for variant in variants:
        row = rows.setdefault(variant.op, {"op": variant.op, "kernel": None, "many_rows": None, "refused": []})
        start = variant.detail.get("from_rows")
        if start is not None:
            bands.setdefault(variant.op, []).append((start, variant.name))
        if variant.reason:
            row["refused"].append({"kernel": variant.name, "reason": variant.reason})
    for op, found in bands.items():
        (_, rows[op]["kernel"]), *others = sorted(found)
        if others:
            rows[op]["many_rows"] = others[-1][1]
        if len(others) > 1:
            rows[op]["bands"] = [{"from_rows": start, "kernel": name} for start, name in sorted(found)]
    return list(rows.values())


def _limits(limits: Limits) -> dict[str, Any]:
    fields = asdict(limits)
    del fields["topology"]  # cores and caches are shown with the chip
    topology = limits.topology
    return fields | {
        "allowed_cpus": _ranges(limits.allowed_cpus),
        "fast_cpus": _ranges(topology.fast_cpus),
        "nodes": [asdict(node) | {"cpus": _ranges(node.cpus)} for node in topology.nodes],
        "thread_budget": limits.thread_budget,
        "compute_threads": limits.num_compute_threads,
        "notes": list(limits.notes),
    }


def _cache(folder: Path, *, is_read: bool) -> dict[str, Any]:
    """`is_read`: packed weights are compared with what was written; a fault of the disk in them shows only in answers."""
    folder = folder.expanduser()
    try:
        paths = sorted((folder / "packed").glob("*.packed"))
        packed = [path.stat().st_size for path in paths]
        problems = {str(path): damaged(path) for path in paths if is_read}
    except OSError as error:
        return {"folder": str(folder), "problem": str(error)}
    here = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    return {
        "folder": str(folder),
        "is_there": folder.is_dir(),
        "is_writable": os.access(here, os.W_OK),
        "packed_models": len(packed),
        "packed_bytes": sum(packed),
    } | ({"damaged": [f"{path}: {what}" for path, what in problems.items() if what]} if is_read else {})


def _versions() -> dict[str, str]:
    """Python and every required package."""
    found = {"python": machine_info.python_version(), "executable": sys.executable, "system": machine_info.platform()}
    try:
        required = requires("octavo") or []
    except PackageNotFoundError:
        required = list(PACKAGES)
    names = [_name(item) for item in required if "extra ==" not in item]
    return found | {name: _version(name) for name in dict.fromkeys(names)}


def _name(requirement: str) -> str:
    """The package of a requirement."""
    for at, char in enumerate(requirement):
        if not (char.isalnum() or char in "-_."):
            return requirement[:at]
    return requirement


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        if package != "octavo":
            return "not installed"
    from octavo import __version__

    return f"{__version__} (not installed: runs from its sources)"


def _ranges(cpus: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5"."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
