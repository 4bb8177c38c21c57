"""From --device to an open device: which word leads where, and what happens when opening fails."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.platforms.gpu.chips import CHIPS, TARGETS
from tests.platforms.gpu.fakes import bindings, build

from octavo.engine.errors import PlatformError
from octavo.platforms import registry
from octavo.platforms.gpu import found as looking
from octavo.platforms.gpu.choice import Found
from octavo.platforms.registry import choose_platform

LOG = "octavo.platforms"


class StandIn:
    """Takes GpuPlatform's place, whose kernels no fake driver can run."""

    problem = ""

    def __init__(self, device: Any, folder: Path, isa: Any, numerics: str) -> None:
        self.name = device.facts.kind
        self.device = device
        self.folder = folder
        self.options = (isa, numerics)
        device.alloc(64)
        if StandIn.problem:
            raise PlatformError(StandIn.problem)


class Machine:
    """One with GPUs: `found` by kind; the drivers under them are fakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, Found] = {}
        self.looks: list[tuple[str, bool]] = []
        self.fakes: dict[str, build.FakeDriver] = {}
        self.signs: set[str] = set()
        code, platform = ModuleType("code"), ModuleType("platform")
        code.find = lambda kind: Path("/code") / kind  # type: ignore[attr-defined]
        code.archs_in = lambda folder: TARGETS[folder.name]  # type: ignore[attr-defined]
        platform.GpuPlatform = StandIn  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "octavo.platforms.gpu.code", code)
        monkeypatch.setitem(sys.modules, "octavo.platforms.gpu.platform", platform)
        monkeypatch.setattr(StandIn, "problem", "")
        monkeypatch.setattr(registry, "has_signs", self.signs.__contains__)
        monkeypatch.setattr(looking, "find", self._find)
        for kind in ("cuda", "rocm"):
            library = ctypes.CDLL(str(build.libraries() / build.SONAMES[kind]))
            api = bindings.binding(kind, library)
            monkeypatch.setattr(import_module(f"octavo.platforms.{kind}.driver"), "load_api", lambda api=api: api)
            self.fakes[kind] = build.FakeDriver(library)

    def put(self, *names: str, **changes: Any) -> None:
        """These chips, in this order."""
        chips = [CHIPS[name] for name in names]
        kind = chips[0].kind
        fake = self.fakes[kind]
        fake.devices(len(chips))
        for index, chip in enumerate(chips):
            fake.device(index, chip.name, chip.arch)
        devices = tuple(chip.facts(index) for index, chip in enumerate(chips))
        self.found[kind] = Found(
            kind, has_driver=True, binding="1.0", devices=devices, **{"targets": TARGETS[kind], **changes}
        )
        self.signs.add(kind)

    def _find(self, kind: str, *, is_thorough: bool = False) -> Found:
        self.looks.append((kind, is_thorough))
        return self.found.get(kind, Found(kind))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(monkeypatch)
    before = {kind: fake.live() for kind, fake in made.fakes.items()}
    yield made
    gc.collect()
    assert {kind: fake.live() for kind, fake in made.fakes.items()} == before, "a device was left open"


def opened(word: str | None, **options: Any) -> tuple[Any, Any]:
    """The platform and why others were passed over; its device is closed."""
    chosen = choose_platform(word, 1, **options)
    platform: Any = chosen.platform
    if isinstance(platform, StandIn):
        platform.device.close()
    return platform, chosen.refused


@pytest.mark.parametrize("word", [None, "auto", "rocm", "ROCm", "rocm:0"])
def test_the_gpu_is_opened_with_its_code(machine: Machine, word: str | None) -> None:
    machine.put("MI300X")
    platform, refused = opened(word, isa=("mfma",), numerics="fast")
    assert (platform.name, platform.folder, platform.options) == (
        "rocm",
        Path("/code/rocm/gfx9-4-generic"),
        (("mfma",), "fast"),
    )
    assert platform.device.facts == CHIPS["MI300X"].facts() and refused == ()


def test_of_both_kinds_the_first_of_the_list_is_taken(machine: Machine) -> None:
    machine.put("RX 9070")
    machine.put("RTX 4090")
    assert opened(None)[0].name == "cuda"
    assert opened("rocm")[0].name == "rocm"


def test_the_number_is_the_drivers(machine: Machine) -> None:
    machine.put("H200", "H200", "GTX 1080")
    assert opened("cuda:1")[0].device.facts.index == 1
    with pytest.raises(
        PlatformError, match=r"cuda:2 was asked for and cannot be used: cuda: cuda:2 NVIDIA GeForce GTX 1080"
    ):
        choose_platform("cuda:2", 1)
    with pytest.raises(PlatformError, match=r"there is no device 7; there are cuda:0 NVIDIA H200"):
        choose_platform("cuda:7", 1)


def test_one_line_says_what_is_used_and_passed_over(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.put("GTX 1080", "H200")
    with caplog.at_level(logging.INFO, LOG):
        opened(None)
    (line,) = [record.getMessage() for record in caplog.records if record.name == LOG]
    assert line == (
        "device cuda:1 NVIDIA H200 (sm_90, 140.0 GiB) with the code object for sm_90a; "
        "cuda:0 NVIDIA GeForce GTX 1080 (sm_61, 8.0 GiB) has no code object"
    )


def test_auto_goes_on_to_the_processor_and_says_why(machine: Machine) -> None:
    machine.put("GTX 1080")
    platform, refused = opened(None)
    assert not isinstance(platform, StandIn)
    ((name, reason),) = [row for row in refused if row[0] == "cuda"]
    assert name == "cuda" and "older than what Octavo's kernels are built for" in reason
    assert machine.looks == [("cuda", False)], "rocm shows no sign"


def test_a_kind_that_was_asked_for_is_never_exchanged(machine: Machine) -> None:
    machine.put("H200")
    with pytest.raises(PlatformError) as found:
        choose_platform("rocm", 1)
    text = str(found.value)
    assert text.startswith(
        "rocm was asked for and cannot be used: rocm: no AMD GPU was found on this machine; `octavo doctor`"
    )
    assert text.endswith("(there is a sign of cuda)")
    assert machine.looks == [("rocm", True)], "what was asked for is looked for thoroughly"


def test_cpu_means_no_gpu(machine: Machine) -> None:
    machine.put("H200")
    platform, refused = opened("cpu")
    assert not isinstance(platform, StandIn) and machine.looks == []
    assert all(name not in ("cuda", "rocm") for name, _ in refused)


@pytest.mark.parametrize("chip", ["H200", "MI300X"])
def test_a_gpu_that_fails_when_it_is_opened_is_closed_again(
    machine: Machine, chip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put(chip)
    kind = CHIPS[chip].kind
    before = machine.fakes[kind].live()
    monkeypatch.setattr(StandIn, "problem", "linear fails its self-test")
    with pytest.raises(PlatformError, match="linear fails its self-test"):
        choose_platform(kind, 1)
    platform, refused = opened(None)
    assert not isinstance(platform, StandIn) and (kind, "linear fails its self-test") in refused
    assert machine.fakes[kind].live() == before
