"""Both drivers, over a device of host memory that checks what it is passed: results, failures, and what is given back.

By default the bindings are stand-ins; `test_driver_bindings.py` runs this file again over the installed ones.
"""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from tests.platforms.gpu.fakes import bindings, build

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.calls import DriverError
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


def fill(at: int, count: int, value: int) -> bytes:
    return struct.pack("<QII", at, count, value)


def add(at: int, count: int, value: float) -> bytes:
    return struct.pack("<QIf", at, count, value)


def floats(device: DriverDevice, at: int, count: int) -> list[float]:
    out = np.empty(4 * count, np.uint8)
    device.read(at, out)
    return out.view(np.float32).tolist()


def test_facts_are_the_drivers(rig: Rig) -> None:
    (facts,) = rig.module.list_devices(rig.api)
    assert (facts.kind, facts.index, facts.name, facts.num_units) == (rig.kind, 0, "Fake One", 304)
    assert facts.arch == ("gfx942" if rig.kind == "rocm" else "sm_90")
    assert (facts.wave, facts.shared_bytes, facts.memory_bytes, facts.is_integrated) == (32, 65536, 1 << 20, False)
    assert facts.driver == ("HIP 7.15.26333" if rig.kind == "rocm" else "CUDA 13.0")
    assert facts.library.startswith("hip-python" if rig.kind == "rocm" else "cuda-bindings")


def test_no_device_is_an_empty_list(rig: Rig) -> None:
    rig.fake.devices(0)
    assert rig.module.list_devices(rig.api) == []


def test_bytes_come_back_from_the_device(device: DriverDevice) -> None:
    at = device.alloc(1000)
    assert at % 256 == 0
    data = np.arange(1000, dtype=np.uint32).astype(np.uint8)
    device.write(at, data)
    data[:] = 0  # the array may change
    device.zero(at + 10, 5)
    device.copy(at + 500, at, 100)
    out = np.empty(1000, np.uint8)
    device.read(at, out)
    expected = np.arange(1000, dtype=np.uint32).astype(np.uint8)
    expected[10:15] = 0
    expected[500:600] = expected[:100]
    np.testing.assert_array_equal(out, expected)


def test_nothing_is_copied_for_no_bytes(device: DriverDevice) -> None:
    at = device.alloc(0)
    device.write(at, np.empty(0, np.uint8))
    device.read(at, np.empty(0, np.uint8))
    device.copy(at, at, 0)
    device.zero(at, 0)


def test_kernels_get_their_grid_and_parameters(device: DriverDevice) -> None:
    at = device.alloc(64)
    code = device.load(CODE)
    device.zero(at, 64)
    device.launch(code.function("add"), (2, 1, 1), 4, add(at, 100, 1.5))  # 8 threads
    device.launch(code.function("add"), (16, 1, 1), 4, add(at, 5, 2.0))  # 5 elements
    assert floats(device, at, 10) == [3.5] * 5 + [1.5] * 3 + [0.0] * 2
    device.launch(code.function("fill"), (1, 1, 1), 3, fill(at, 9, 0))
    assert floats(device, at, 4) == [0.0, 0.0, 0.0, 3.5]


def test_graphs_keep_the_parameters_of_each_launch(device: DriverDevice) -> None:
    at = device.alloc(64)
    code = device.load(CODE)
    step = code.function("add")

    def launches() -> None:
        device.zero(at, 16)
        for value in (1.0, 2.0, 4.0):
            device.launch(step, (1, 1, 1), 2, add(at, 2, value))
        device.copy(at + 8, at, 8)

    device.zero(at, 64)
    graph = device.capture(launches)
    assert floats(device, at, 4) == [0.0] * 4, "it was run while it was recorded"
    for _ in range(3):
        graph.launch()
    assert floats(device, at, 4) == [7.0] * 4
    graph.close()
    graph.close()
    with pytest.raises(PlatformError, match="the graph is closed"):
        graph.launch()


@pytest.mark.parametrize("what", ["alloc", "free", "pinned", "write", "read", "synchronize", "load", "capture"])
def test_what_no_graph_can_hold_is_refused_while_one_is_recorded(device: DriverDevice, what: str) -> None:
    at = device.alloc(64)
    host = np.zeros(8, np.uint8)
    doings = {
        "alloc": lambda: device.alloc(8), "free": lambda: device.free(at), "pinned": lambda: device.pinned(8),
        "write": lambda: device.write(at, host), "read": lambda: device.read(at, host),
        "synchronize": device.synchronize, "load": lambda: device.load(CODE), "capture": lambda: device.capture(list),
    }  # fmt: skip
    with pytest.raises(PlatformError, match="while launches are recorded"):
        device.capture(lambda: (doings[what](), None)[1])  # type: ignore[func-returns-value]
    device.zero(at, 8)  # the recording ended
    device.read(at, host)


def test_an_error_of_the_recorded_is_the_one_that_is_told(device: DriverDevice) -> None:
    def broken() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        device.capture(broken)
    device.capture(lambda: None).close()


def test_pinned_memory_is_given_back_when_its_arrays_are_gone(rig: Rig) -> None:
    device = rig.open()
    array = device.pinned(100)
    assert array.shape == (100,) and array.flags.writeable
    array[:] = 7
    at = device.alloc(100)
    device.write(at, array[10:])
    view = array[:3]
    before = rig.fake.live()["pinned"]
    del array
    gc.collect()
    device.synchronize()
    assert rig.fake.live()["pinned"] == before and view.tolist() == [7, 7, 7]
    del view
    gc.collect()
    assert rig.fake.live()["pinned"] == before, "it may still be read by the queue"
    device.synchronize()
    assert rig.fake.live()["pinned"] == before - 1
    device.close()


def test_pinned_memory_outlives_its_device(rig: Rig) -> None:
    device = rig.open()
    array = device.pinned(4)
    before = rig.fake.live()["pinned"]
    device.close()
    del device
    array[:] = 3
    assert array.tolist() == [3, 3, 3, 3] and rig.fake.live()["pinned"] == before
    del array
    gc.collect()
    assert rig.fake.live()["pinned"] == before - 1


def test_the_device_keeps_time(device: DriverDevice) -> None:
    at = device.alloc(64)
    assert device.seconds(lambda: [device.zero(at, 64) for _ in range(5)] and None) == pytest.approx(0.005)
    assert device.seconds(lambda: None) == 0.0


def test_memory_is_counted_and_its_lack_has_numbers(device: DriverDevice) -> None:
    total = 1 << 20
    assert device.memory() == (total, total)
    at = device.alloc(1000)
    assert device.memory() == (total - 1024, total)
    with pytest.raises(PlatformError) as found:
        device.alloc(total)
    text = str(found.value)
    for part in (f"{device.name} (Fake One)", f"{total} bytes", f"{total - 1024} of {total} are free", "--kv-gib"):
        assert part in text
    device.free(at)
    assert device.memory() == (total, total)
    with pytest.raises(PlatformError, match="no memory of this device's"):
        device.free(at)


def test_failures_name_the_call_and_the_drivers_words(rig: Rig, device: DriverDevice) -> None:
    at = device.alloc(8)
    rig.fake.plan(rig.names["zero"], 719)
    with pytest.raises(DriverError) as found:
        device.zero(at, 8)
    assert (found.value.call, found.value.code) == (rig.names["zero"], 719)
    for part in (device.name, rig.names["zero"], "LAUNCH", "a fault of the fake (719)", "start it again"):
        assert part.lower() in str(found.value).lower()


def test_a_code_that_the_binding_does_not_know_is_an_error_of_ours(rig: Rig, device: DriverDevice) -> None:
    at = device.alloc(8)
    rig.fake.plan(rig.names["zero"], 98765)
    with pytest.raises(DriverError, match="98765"):
        device.zero(at, 8)


def test_a_function_that_the_binding_lacks_is_an_error_of_ours(rig: Rig, device: DriverDevice) -> None:
    with pytest.raises(DriverError, match="has no hipOrCudaTeleport"):
        device._calls.call("hipOrCudaTeleport")


def test_a_kernel_that_the_code_object_lacks_is_named(device: DriverDevice) -> None:
    code = device.load(CODE)
    with pytest.raises(
        PlatformError, match=r"has no kernel teleport; install octavo and its code objects in one version"
    ):
        code.function("teleport")


def test_what_is_no_code_object_is_refused(device: DriverDevice) -> None:
    with pytest.raises(DriverError, match=r"\(200\)"):
        device.load(b"nothing of use")


def test_too_many_parameters_are_refused(device: DriverDevice) -> None:
    function = device.load(CODE).function("fill")
    with pytest.raises(PlatformError, match="4097 bytes of parameters; at most 4096"):
        device.launch(function, (1, 1, 1), 1, bytes(4097))


def test_arrays_that_do_not_lie_together_are_refused(device: DriverDevice) -> None:
    at = device.alloc(64)
    with pytest.raises(PlatformError, match="must lie together"):
        device.write(at, np.zeros(16, np.uint8)[::2])
    fixed = np.zeros(4, np.uint8)
    fixed.flags.writeable = False
    with pytest.raises(PlatformError, match="can be written"):
        device.read(at, fixed)


def test_another_thread_gets_the_device_too(rig: Rig, device: DriverDevice) -> None:
    at = device.alloc(16)
    step = device.load(CODE).function("fill")
    before = rig.fake.calls(rig.names["current"])
    for _ in range(3):
        device.launch(step, (1, 1, 1), 4, fill(at, 4, 1))
    assert rig.fake.calls(rig.names["current"]) == before, "a launch needs one call of the driver"
    thread = threading.Thread(target=device.launch, args=(step, (1, 1, 1), 4, fill(at, 4, 5)))
    thread.start()
    thread.join()
    assert rig.fake.calls(rig.names["current"]) == before + 1
    out = np.empty(16, np.uint8)
    device.read(at, out)
    assert out.view(np.uint32).tolist() == [5] * 4


def test_a_closed_device_refuses_use(rig: Rig) -> None:
    device = rig.open()
    at, code = device.alloc(64), device.load(CODE)
    graph = device.capture(lambda: device.zero(at, 64))
    step = code.function("fill")
    device.close()
    device.close()
    host = np.zeros(4, np.uint8)
    for use in (
        lambda: device.alloc(8), lambda: device.free(at), lambda: device.pinned(8), lambda: device.write(at, host),
        lambda: device.read(at, host), lambda: device.copy(at, at, 8), lambda: device.zero(at, 8), lambda: device.load(CODE),
        lambda: device.launch(step, (1, 1, 1), 1, fill(at, 1, 1)), lambda: device.capture(list), device.synchronize,
        lambda: device.seconds(list), device.memory, lambda: code.function("fill"), graph.launch,
    ):  # fmt: skip
        with pytest.raises(PlatformError, match=f"{device.name} is closed; open it again"):
            use()


def test_closing_gives_all_back(rig: Rig) -> None:
    before = rig.fake.live()
    device = rig.open()
    at = device.alloc(64)
    device.load(CODE)
    device.seconds(lambda: None)
    kept = device.capture(lambda: device.zero(at, 64))
    device.capture(lambda: device.zero(at, 64)).close()
    kept.close()
    device.close()
    assert rig.fake.live() == before


def test_a_device_that_nobody_closed_gives_all_back(rig: Rig) -> None:
    before = rig.fake.live()
    device = rig.open()
    device.alloc(64)
    graph = device.capture(lambda: None)
    del graph, device
    gc.collect()
    assert rig.fake.live() == before


def test_closing_a_broken_device_does_not_raise(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    device = rig.open()
    device.alloc(64)
    rig.fake.plan(rig.names["wait"], 719)
    device.close()
    assert "was closed with a failure" in caplog.text


def test_two_devices_do_not_share_a_queue(rig: Rig) -> None:
    first, second = rig.open(), rig.open()
    at, other = first.alloc(16), second.alloc(16)
    first.close()
    second.zero(other, 16)
    with pytest.raises(PlatformError, match="no memory of this device's"):
        second.free(at)
    second.close()
