"""Which processor this is, as the system names it. Reads `root/proc/cpuinfo`, its first processor only."""

from __future__ import annotations

import platform
from pathlib import Path


def read_cpuinfo(root: Path = Path("/")) -> dict[str, str]:
    """The first processor's fields; empty where the file cannot be read."""
    fields: dict[str, str] = {}
    try:
        with open(root / "proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if not line.strip():
                    break
                fields[key.strip()] = value.strip()
    except OSError:
        pass
    return fields


def chip_name(root: Path = Path("/")) -> str:
    """Vendor's name of the processor with its stepping, or the machine's architecture."""
    fields = read_cpuinfo(root)
    name = fields.get("model name") or fields.get("CPU part") or platform.processor() or platform.machine()
    return " ".join([name, *(fields[key] for key in ("cpu family", "model", "stepping") if key in fields)])
