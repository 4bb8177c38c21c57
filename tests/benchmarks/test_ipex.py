"""Intel's extension says exactly what it lacks here: the Python, a package, torch's version, the processor."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
from benchmarks.peers import protocol
from benchmarks.processes import PEERS

GOOD = {"torch": "2.8.0+cpu", "intel-extension-for-pytorch": "2.8.0", "transformers": "4.55.0"}


@pytest.fixture
def ipex(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "protocol", protocol)
    spec = importlib.util.spec_from_file_location("ipex_program", PEERS / "ipex.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_there_is_no_reason(ipex: ModuleType) -> None:
    assert ipex.why_not((3, 9), GOOD, {"avx2"}) == ipex.why_not((3, 13), GOOD, {"avx2"}) == ""


@pytest.mark.parametrize(
    ("python", "versions", "flags", "said"),
    [
        ((3, 14), GOOD, {"avx2"}, "this is 3.14"),
        ((3, 11), {"torch": "2.8.0"}, {"avx2"}, "intel-extension-for-pytorch, transformers: not installed"),
        ((3, 11), {**GOOD, "torch": "2.13.0+cpu"}, {"avx2"}, "found 2.13.0+cpu; install torch==2.8.0"),
        ((3, 11), GOOD, {"sse4_2"}, "needs a processor with AVX2"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    ipex: ModuleType, python: tuple[int, int], versions: dict[str, str], flags: set[str], said: str
) -> None:
    assert said in ipex.why_not(python, versions, flags)


def test_this_machine_is_read(ipex: ModuleType) -> None:
    assert "pytest" in ipex.installed() and ipex.cpu_flags()
