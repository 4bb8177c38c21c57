"""Every benchmark can be listed and says what it does; the parts of benchmarks are not listed; the schema is one."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from benchmarks.common import ROOT
from benchmarks.processes import environment

from octavo.engine.server.commands.bench import catalogue

NAMES = catalogue(ROOT / "benchmarks")
NAMES_OF_MODULES = [
    "scheduler", "kv_pool", "profile", "kernels.__main__", "sampling", "head",
    "size", "startup", "decode", "models", "limits", "table",
]  # fmt: skip


def test_all_benchmarks_are_there() -> None:
    wanted = {
        "startup",
        "size",
        "decode",
        "scheduler",
        "kv_pool",
        "kernels",
        "sampling",
        "head",
        "profile",
        "models",
        "limits",
        "table",
    }
    assert wanted <= NAMES.keys()
    assert not {"common", "processes", "cells", "grid", "peers/llamacpp", "peers/protocol"} & NAMES.keys()
    assert all(text.endswith(".") or ":" in text for text in NAMES.values())


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_benchmark_takes_the_common_options(name: str) -> None:
    module = "benchmarks." + name.replace("/", ".")
    shown = subprocess.run(
        [sys.executable, "-m", module, "--help"], env=environment(), check=True, capture_output=True, text=True, cwd="/"
    ).stdout
    for option in ("--threads", "--repeats", "--save"):
        assert option in shown
    for line in shown.splitlines():
        assert "octavo bench" not in line or f"octavo bench {name}" in line


@pytest.mark.parametrize("name", NAMES_OF_MODULES)
def test_results_are_made_by_one_function(name: str) -> None:
    try:
        module = importlib.import_module(f"benchmarks.{name}")
    except ImportError as error:
        pytest.skip(str(error))
    assert callable(module.results) and callable(module.main)
