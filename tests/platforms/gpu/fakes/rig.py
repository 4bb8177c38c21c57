"""Both kinds of device over their fake drivers, for tests: `rig` opens them and sees that everything is given back."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from tests.platforms.gpu.fakes import bindings, build

from octavo.platforms.gpu.driver import DriverDevice

CODE = b"FAKE:fill,add"
REAL = os.environ.get("DRIVER_TESTS_BINDING", "")  # the kind whose installed binding is to be used
KINDS = [REAL] if REAL else ["rocm", "cuda"]
NAMES = {
    "rocm": {"alloc": "hipMalloc", "zero": "hipMemsetAsync", "wait": "hipStreamSynchronize", "launch": "hipModuleLaunchKernel",
             "record": "hipStreamBeginCapture", "free": "hipFree", "current": "hipSetDevice", "load": "hipModuleLoadData",
             "graph": "hipGraphLaunch"},
    "cuda": {"alloc": "cuMemAlloc", "zero": "cuMemsetD8Async", "wait": "cuStreamSynchronize", "launch": "cuLaunchKernel",
             "record": "cuStreamBeginCapture", "free": "cuMemFree", "current": "cuCtxSetCurrent", "load": "cuModuleLoadData",
             "graph": "cuGraphLaunch"},
}  # fmt: skip


class Rig:
    """A kind's fake driver with one device, and the module that drives it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.module: Any = import_module(f"octavo.platforms.{kind}.driver")
        library = ctypes.CDLL(str(build.libraries() / build.SONAMES[kind]))
        self.api = self.module.load_api() if REAL else bindings.binding(kind, library)
        self.fake = build.FakeDriver(library)
        self.fake.devices(1)
        self.fake.version(0)
        self.fake.device(0, "Fake One", "gfx942:sramecc+:xnack-" if kind == "rocm" else "sm_90", units=304)
        self.names = NAMES[kind]

    def open(self) -> DriverDevice:
        made: Any = self.module.HipDevice if self.kind == "rocm" else self.module.CudaDevice
        device: DriverDevice = made(self.module.list_devices(self.api)[0], self.api)
        return device


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    found = Rig(request.param)
    before = found.fake.live()
    yield found
    gc.collect()
    assert found.fake.live() == before, "something was not given back"


@pytest.fixture
def device(rig: Rig) -> Iterator[DriverDevice]:
    made = rig.open()
    yield made
    made.close()
