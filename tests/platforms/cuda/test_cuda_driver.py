"""What is CUDA's own: the primary context, which lives until the last pinned array is gone; versions; capabilities as archs."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator

import pytest
from tests.platforms.gpu.fakes import bindings, build

from octavo.platforms.cuda import driver
from octavo.platforms.gpu.calls import DriverError


@pytest.fixture
def fake() -> Iterator[build.FakeDriver]:
    made = build.FakeDriver(ctypes.CDLL(str(build.libraries() / build.SONAMES["cuda"])))
    made.devices(2)
    made.device(0, "NVIDIA H200", "sm_90")
    made.device(1, "NVIDIA GeForce RTX 5090", "sm_120")
    made.version(0)
    yield made
    made.version(0)


def retained(fake: build.FakeDriver, index: int = 0) -> int:
    return int((ctypes.c_int * 4).in_dll(fake.library, "fake_retained")[index])


def test_the_context_is_released_with_the_device(fake: build.FakeDriver) -> None:
    api = bindings.binding("cuda", fake.library)
    first, second = driver.list_devices(api)
    device = driver.CudaDevice(second, api)
    assert (retained(fake, 0), retained(fake, 1)) == (0, 1)
    device.close()
    gc.collect()
    assert retained(fake, 1) == 0
    assert (first.arch, second.arch) == ("sm_90", "sm_120")


def test_the_context_outlives_the_device_for_a_pinned_array(fake: build.FakeDriver) -> None:
    api = bindings.binding("cuda", fake.library)
    device = driver.CudaDevice(driver.list_devices(api)[0], api)
    array = device.pinned(16)
    device.close()
    del device
    gc.collect()
    assert retained(fake) == 1, "the array's memory would be gone with it"
    array[:] = 1
    del array
    gc.collect()
    assert retained(fake) == 0


def test_a_device_that_fails_to_open_leaves_no_context(fake: build.FakeDriver) -> None:
    api = bindings.binding("cuda", fake.library)
    facts = driver.list_devices(api)[0]
    fake.plan("cuStreamCreate", 2)
    with pytest.raises(DriverError, match="cuStreamCreate failed: OUT_OF_MEMORY: out of memory"):
        driver.CudaDevice(facts, api)
    gc.collect()
    assert retained(fake) == 0


@pytest.mark.parametrize(("number", "release"), [(12080, (12, 8)), (13050, (13, 5)), (11040, (11, 4))])
def test_versions_are_thousands_and_tens(fake: build.FakeDriver, number: int, release: tuple[int, int]) -> None:
    fake.version(number)
    api = bindings.binding("cuda", fake.library)
    api.CUDA_VERSION = number
    assert driver.driver_release(api) == driver.binding_release(api) == release
    assert driver.list_devices(api)[0].driver == "CUDA {}.{}".format(*release)


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGetCount"])
def test_no_device_is_no_error_whichever_call_says_so(fake: build.FakeDriver, call: str) -> None:
    fake.plan(call, 100)
    assert driver.list_devices(bindings.binding("cuda", fake.library)) == []


def test_a_driver_that_cannot_start_is_an_error(fake: build.FakeDriver) -> None:
    fake.plan("cuInit", 500)
    with pytest.raises(DriverError, match=r"CUDA: cuInit failed: NOT_FOUND"):
        driver.list_devices(bindings.binding("cuda", fake.library))
