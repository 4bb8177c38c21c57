"""What is HIP's own: names of archs with features, versions in one number, a binding whose older releases fill in structures."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.platforms.gpu.fakes import bindings, build

from octavo.platforms.rocm import driver


@pytest.fixture
def fake() -> build.FakeDriver:
    made = build.FakeDriver(ctypes.CDLL(str(build.libraries() / build.SONAMES["rocm"])))
    made.devices(2)
    made.device(0, "AMD Instinct MI355X", "gfx950:sramecc+:xnack-", wave=64, units=256, shared=163840)
    made.device(1, "AMD Radeon 8060S", "gfx1151", is_integrated=True)
    made.version(0)
    return made


@pytest.mark.parametrize(
    ("name", "arch"),
    [("gfx942:sramecc+:xnack-", "gfx942"), ("gfx1100", "gfx1100"), ("gfx90a:xnack+", "gfx90a"), ("", "")],
)
def test_archs_lose_their_features(name: str, arch: str) -> None:
    assert driver.arch_of(name) == arch


@pytest.mark.parametrize(
    ("number", "release", "text"), [(60443484, (6, 4), "6.4.43484"), (71526333, (7, 15), "7.15.26333")]
)
def test_the_runtimes_version_is_one_number(
    fake: build.FakeDriver, number: int, release: tuple[int, int], text: str
) -> None:
    fake.version(number)
    api = bindings.binding("rocm", fake.library)
    assert driver.driver_release(api) == release
    assert {facts.driver for facts in driver.list_devices(api)} == {f"HIP {text}"}
    fake.version(0)


def test_a_binding_that_fills_in_structures_gives_the_same_facts(fake: build.FakeDriver) -> None:
    api = bindings.binding("rocm", fake.library)
    expected = driver.list_devices(api)
    assert [facts.arch for facts in expected] == ["gfx950", "gfx1151"]
    assert [facts.is_integrated for facts in expected] == [False, True] and expected[0].shared_bytes == 163840
    newer = api.hipGetDeviceProperties

    def older(prop: Any, device: int) -> tuple[Any, ...]:
        code, found = newer(device)
        vars(prop).update(vars(found))
        return (code,)

    api.hipGetDeviceProperties, api.hipDeviceProp_t = older, SimpleNamespace
    assert driver.list_devices(api) == expected


def test_the_release_of_the_binding_is_that_of_hip(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm 10 has HIP 7.15: only the latter can be compared with the runtime's."""
    version, package = ModuleType("rocm.version"), ModuleType("rocm")
    version.HIP_VERSION_TUPLE = (7, 15, 26333, "0000000")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rocm", package)
    monkeypatch.setitem(sys.modules, "rocm.version", version)
    assert driver.binding_release(object()) == (7, 15)
    older = ModuleType("hip")
    older.HIP_VERSION_TUPLE = (6, 4, 43484, "a")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rocm.version", None)
    monkeypatch.setitem(sys.modules, "hip", older)
    assert driver.binding_release(object()) == (6, 4)
    monkeypatch.setitem(sys.modules, "hip", None)
    assert driver.binding_release(object()) == (0, 0)


def test_the_newer_name_of_the_binding_goes_before_the_older(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("rocm", "rocm.bindings", "rocm.bindings.hip", "hip")
    modules = {name: ModuleType(name) for name in names}
    modules["hip"].hip = older = ModuleType("hip.hip")  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert driver.load_api() is modules["rocm.bindings.hip"]
    monkeypatch.delitem(sys.modules, "rocm.bindings.hip")
    monkeypatch.delitem(sys.modules, "rocm.bindings")
    modules["rocm"].__path__ = []  # type: ignore[attr-defined]
    assert driver.load_api() is older
