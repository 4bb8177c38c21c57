"""Memory of both drivers, on the device and pinned: what is copied, when it is given back, what happens when there is too little.

By default the bindings are stand-ins; `test_driver_bindings.py` runs this file again over the installed ones.
"""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from tests.platforms.gpu.fakes.rig import Rig, device, rig

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.driver import DriverDevice

__all__ = ["device", "rig"]


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


def test_memory_is_counted_and_its_lack_has_numbers(device: DriverDevice) -> None:
    total = 1 << 20
    assert device.memory() == (total, total)
    at = device.alloc(100_000)
    assert device.memory() == (total - 100_096, total)
    with pytest.raises(PlatformError) as found:
        device.alloc(total)
    text = str(found.value)
    for part in (f"{device.name} (Fake One)", f"{total} bytes", f"{total - 100_096} of {total} are free", "--kv-gib"):
        assert part in text
    device.free(at)
    assert device.memory() == (total, total)
    with pytest.raises(PlatformError, match="no memory of this device's"):
        device.free(at)


def test_giving_memory_back_never_waits(rig: Rig, device: DriverDevice) -> None:
    """Finalizers do it, at any time and in any thread; the queue may still use it."""
    at, graph_at = device.alloc(1 << 17), device.alloc(1 << 17)
    device.zero(at, 1 << 17)
    before = {name: rig.fake.calls(rig.names[name]) for name in ("wait", "free", "current")}
    thread = threading.Thread(target=device.free, args=(at,))
    thread.start()
    thread.join()
    device.capture(lambda: device.free(graph_at)).close()
    assert {name: rig.fake.calls(rig.names[name]) for name in ("wait", "free")} == {
        k: before[k] for k in ("wait", "free")
    }
    device.synchronize()
    assert rig.fake.calls(rig.names["free"]) == before["free"] + 2


def test_small_blocks_are_used_again_once_the_queue_is_done_with_them(rig: Rig, device: DriverDevice) -> None:
    first = device.alloc(1000)
    device.free(first)
    second = device.alloc(1000)
    assert second != first, "the queue may still use it"
    device.free(second)
    device.synchronize()
    calls = rig.fake.calls(rig.names["alloc"])
    assert {device.alloc(700), device.alloc(1024)} == {first, second}
    assert rig.fake.calls(rig.names["alloc"]) == calls


def test_memory_that_was_given_back_is_found_when_more_is_needed(device: DriverDevice) -> None:
    total = 1 << 20
    for size in (total // 2, 512, total // 2 - 512):
        device.free(device.alloc(size))
    at = device.alloc(total)
    device.zero(at, total)
    device.free(at)


def test_memory_may_be_given_back_to_a_closed_device(rig: Rig) -> None:
    device = rig.open()
    at = device.alloc(64)
    device.close()
    device.free(at)


def test_small_writes_do_not_wait(rig: Rig, device: DriverDevice) -> None:
    """They lie in pinned memory until the queue gets there, so the array may change and no driver has to stage them."""
    at = device.alloc(1 << 18)
    waits = rig.fake.calls(rig.names["wait"])
    array = np.empty(100_000, np.uint8)
    for number in range(10):
        array[:] = number
        device.write(at + number * 1000, array)
    assert rig.fake.calls(rig.names["wait"]) == waits
    array[:] = 99
    device.write(at + 150_000, array)  # now the buffer is full
    assert rig.fake.calls(rig.names["wait"]) == waits + 1
    out = np.empty(10_000, np.uint8)
    device.read(at, out)
    np.testing.assert_array_equal(out, np.repeat(np.arange(10, dtype=np.uint8), 1000))
    waits = rig.fake.calls(rig.names["wait"])
    for _ in range(10):
        device.write(at, array)
    assert rig.fake.calls(rig.names["wait"]) == waits, "a read empties it"


def test_what_is_pinned_is_copied_from_where_it_is(rig: Rig, device: DriverDevice) -> None:
    at = device.alloc(64)
    array = device.pinned(128)
    array[:] = 1
    device.write(at, array[32:64])
    array[:] = 2  # before the queue got there
    out = np.empty(32, np.uint8)
    device.read(at, out)
    assert set(out.tolist()) == {2}


def test_arrays_that_do_not_lie_together_are_refused(device: DriverDevice) -> None:
    at = device.alloc(64)
    with pytest.raises(PlatformError, match="must lie together"):
        device.write(at, np.zeros(16, np.uint8)[::2])
    fixed = np.zeros(4, np.uint8)
    fixed.flags.writeable = False
    with pytest.raises(PlatformError, match="can be written"):
        device.read(at, fixed)


def test_two_devices_do_not_share_a_queue(rig: Rig) -> None:
    first, second = rig.open(), rig.open()
    at, other = first.alloc(16), second.alloc(16)
    first.close()
    second.zero(other, 16)
    with pytest.raises(PlatformError, match="no memory of this device's"):
        second.free(at)
    second.close()
