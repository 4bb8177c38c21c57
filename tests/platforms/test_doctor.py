"""The report is plain data, keeps every refusal's reason, hides secrets, and survives odd machines and bad settings."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.engine.config import ENVIRONMENT
from octavo.engine.errors import PlatformError
from octavo.engine.memory import MemoryPlan
from octavo.engine.server.commands.doctor import lines
from octavo.platforms import registry
from octavo.platforms.cpu.packed_cache import PackedCache
from octavo.platforms.doctor import _ranges, kernel_rows, report
from octavo.platforms.reference.platform import ReferencePlatform
from octavo.platforms.registry import PLATFORMS
from octavo.platforms.select import FAST_LEVELS
from octavo.platforms.types import Variant

HAS_X86 = not next(entry for entry in PLATFORMS if entry.name == "x86").probe()
needs_x86 = pytest.mark.skipif(not HAS_X86, reason="the x86 kernels do not run here")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def test_report_is_json_and_has_every_section() -> None:
    found = report()
    again = json.loads(json.dumps(found))
    assert again == found
    expected = {"octavo", "chip", "environment", "platform", "kernels", "limits", "memory", "cache", "versions"}
    assert expected <= found.keys()
    assert found["versions"]["numpy"][0].isdigit() and found["memory"] is None


@needs_x86
def test_every_kernel_is_chosen_or_refused_with_a_reason() -> None:
    found = report()
    assert found["platform"]["name"] == "x86"
    assert all(row["kernel"] for row in found["kernels"])
    assert all(refused["reason"] for row in found["kernels"] for refused in row["refused"])
    for level in found["levels"]:
        may_run = level["is_available"] and level["is_allowed"] and level["level"] not in FAST_LEVELS
        assert bool(level["reason"]) != may_run
    assert [row["result"] for row in found["selftest"]] == ["passed"]


@needs_x86
def test_levels_switched_off_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_ISA", "scalar")
    found = report()
    avx2 = next(level for level in found["levels"] if level["level"] == "avx2")
    assert not avx2["is_allowed"] and avx2["chosen"] == 0
    if avx2["is_available"]:
        assert avx2["reason"] == "switched off by --isa or OCTAVO_ISA"
    assert {row["kernel"].rsplit("__", 1)[1] for row in found["kernels"]} == {"scalar"}


@needs_x86
def test_all_levels_are_tested_when_asked() -> None:
    found = report(is_testing_all=True)
    runs = [
        level["level"]
        for level in found["levels"]
        if level["is_available"] and level["kernels"] and not level["reason"]
    ]
    assert [row["kernels"] for row in found["selftest"]] == ["in use", *(f"{level} alone" for level in runs)]
    assert {row["result"] for row in found["selftest"]} == {"passed"}


def test_api_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_API_KEY", "sesame")
    monkeypatch.setenv("OCTAVO_THREADS", "1")
    found = report()
    assert "sesame" not in json.dumps(found)
    assert found["environment"] == {"OCTAVO_THREADS": "1", "OCTAVO_API_KEY": "(set, not shown)"}
    assert found["platform"]["threads"] == 1


@pytest.mark.parametrize(("name", "value"), [("OCTAVO_THREADS", "many"), ("OCTAVO_ISSA", "avx2")])
def test_bad_variable_is_reported_not_raised(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    found = report()
    assert name in found["environment"]["problem"] and found["kernels"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("OCTAVO_PLATFORM", "abacus"), pytest.param("OCTAVO_ISA", "sse9", marks=needs_x86)],
)
def test_impossible_choice_is_reported_not_raised(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    found = report()
    assert value in found["platform"]["problem"] and "kernels" not in found
    assert found["limits"]["usable_memory"] > 0


def test_refused_platform_keeps_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise PlatformError("never made")

    entry = registry.Entry("slate", lambda: "no chalk", broken)
    monkeypatch.setattr(registry, "PLATFORMS", (entry, *PLATFORMS))
    assert report()["platform"]["refused"] == [{"platform": "slate", "reason": "no chalk"}]


def test_the_platform_is_closed_behind_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that the report has opened is not kept from whoever comes next."""
    closed = []

    class Kept(ReferencePlatform):
        def close(self) -> None:
            closed.append(self.name)

    entry = registry.Entry("slate", lambda: "", lambda *_: Kept())
    monkeypatch.setattr(registry, "PLATFORMS", (entry, *PLATFORMS))
    assert report()["platform"]["name"] == "reference" and closed == ["reference"]


def test_empty_machine_gives_a_report(tmp_path: Path) -> None:
    found = report(root=tmp_path)
    assert found["chip"]["features"] == [] and found["chip"]["cores"] >= 1


def test_chip_is_read_from_the_first_processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    blocks = [
        "vendor_id\t: GenuineIntel\nmodel name\t: Abacus 9\nflags\t\t: fpu avx2 fma nothing\n",
        "model name : B\n",
    ]
    (tmp_path / "proc/cpuinfo").write_text("\n".join(blocks))
    chip = report(root=tmp_path)["chip"]
    assert (chip["vendor"], chip["model"], chip["features"]) == ("GenuineIntel", "Abacus 9", ["fma", "avx2"])


def test_packed_weights_that_changed_on_disk_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    cache = PackedCache(tmp_path / "packed", b"model", b"one")
    cache.put("blk.0.attn_q.weight", np.ones(9000, np.uint8))
    path = cache.save()
    assert path is not None and report(is_testing_all=True)["cache"]["damaged"] == []
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    (found,) = report(is_testing_all=True)["cache"]["damaged"]
    assert str(path) in found and "blk.0.attn_q.weight" in found and "delete it" in found
    assert "damaged" not in report()["cache"]  # it reads them all


def test_memory_plan_is_shown() -> None:
    plan = MemoryPlan(1 << 30, 1 << 29, 1000, 100, 10, 4096, 7, 32)
    found = report(memory=plan)["memory"]
    assert found["kv_bytes"] == 7 * 4096 and found["plan"] == plan.line()


def test_kernels_for_few_and_many_rows_are_told_apart() -> None:
    variants = [
        Variant("linear", "linear__amx", "amx", "", {"chosen": True, "from_rows": 16}),
        Variant("linear", "linear__avx2", "avx2", "", {"chosen": True, "from_rows": 0}),
        Variant("linear", "linear__next", "next", "no such chip", {"chosen": False, "from_rows": None}),
        Variant("rope", "rope__avx2", "avx2", "", {"chosen": True, "from_rows": 0}),
    ]
    assert kernel_rows(variants) == [
        {
            "op": "linear",
            "kernel": "linear__avx2",
            "many_rows": "linear__amx",
            "refused": [{"kernel": "linear__next", "reason": "no such chip"}],
        },
        {"op": "rope", "kernel": "rope__avx2", "many_rows": None, "refused": []},
    ]


def test_more_than_two_kernels_of_an_op_are_told_with_their_rows() -> None:
    starts = {"triton": 65, "mmafast": 0, "simt": None, "mmafastwide": 17}
    variants = [Variant("linear", f"linear__{level}", level, "", {"from_rows": at}) for level, at in starts.items()]
    (row,) = kernel_rows(variants)
    assert (row["kernel"], row["many_rows"]) == ("linear__mmafast", "linear__triton")
    assert row["bands"] == [
        {"from_rows": 0, "kernel": "linear__mmafast"},
        {"from_rows": 17, "kernel": "linear__mmafastwide"},
        {"from_rows": 65, "kernel": "linear__triton"},
    ]
    assert "0 linear__mmafast; 17 linear__mmafastwide; 65 linear__triton" in "\n".join(lines([row]))


def test_cpu_ranges() -> None:
    assert [_ranges(cpus) for cpus in ([], [3], [0, 1, 2, 5], [7, 6])] == ["", "3", "0-2,5", "6-7"]


def test_report_takes_little_time() -> None:
    seconds = []
    for _ in range(3):
        start = time.process_time()
        report()
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.3
