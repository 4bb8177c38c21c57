"""Both drivers, over a device of host memory that checks what it is passed: kernels, graphs, time, failures, the end.

By default the bindings are stand-ins; `test_driver_bindings.py` runs this file again over the installed ones.
"""

from __future__ import annotations

import gc
import struct
import threading

import numpy as np
import pytest
from tests.platforms.gpu.fakes.rig import CODE, Rig, device, rig

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.calls import DriverError
from octavo.platforms.gpu.driver import DriverDevice

__all__ = ["device", "rig"]


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


def test_kernels_get_their_grid_and_parameters(device: DriverDevice) -> None:
    at = device.alloc(64)
    code = device.load(CODE)
    device.zero(at, 64)
    device.launch(code.function("add"), (2, 1, 1), 4, add(at, 100, 1.5))  # 8 threads
    device.launch(code.function("add"), (16, 1, 1), 4, add(at, 5, 2.0))  # 5 elements
    assert floats(device, at, 10) == [3.5] * 5 + [1.5] * 3 + [0.0] * 2
    device.launch(code.function("fill"), (1, 1, 1), 3, fill(at, 9, 0))
    assert floats(device, at, 4) == [0.0, 0.0, 0.0, 3.5]


def test_a_launch_gets_the_shared_memory_that_its_function_was_asked_for(device: DriverDevice) -> None:
    at = device.alloc(64)
    device.zero(at, 64)
    code = device.load(CODE)
    device.launch(code.function("add", 100_000), (1, 1, 1), 4, add(at, 4, 1.0), 100_000)
    assert floats(device, at, 4) == [1.0] * 4
    if device.facts.kind == "cuda":
        with pytest.raises(DriverError, match="cuLaunchKernel"):
            device.launch(code.function("add"), (1, 1, 1), 4, add(at, 4, 1.0), 100_000)


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


@pytest.mark.parametrize("what", ["alloc", "pinned", "write", "read", "synchronize", "load", "capture", "memory"])
def test_what_no_graph_can_hold_is_refused_while_one_is_recorded(device: DriverDevice, what: str) -> None:
    at = device.alloc(64)
    host = np.zeros(8, np.uint8)
    doings = {
        "alloc": lambda: device.alloc(8), "memory": device.memory, "pinned": lambda: device.pinned(8),
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


def test_the_device_keeps_time(device: DriverDevice) -> None:
    at = device.alloc(64)
    assert device.seconds(lambda: [device.zero(at, 64) for _ in range(5)] and None) == pytest.approx(0.005)
    assert device.seconds(lambda: None) == 0.0


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
        lambda: device.alloc(8), lambda: device.pinned(8), lambda: device.write(at, host),
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
    device.free(device.alloc(1 << 17))
    rig.fake.plan(rig.names["wait"], 719)
    device.close()
    assert "was closed with a failure" in caplog.text
