"""NVIDIA's GPUs through cuda-bindings, the vendor's binding of the CUDA driver (https://nvidia.github.io/cuda-python).

The binding opens libcuda at the first call, not when it is imported. Addresses and handles may be ints. The device's primary
context is used, which other libraries of the process share; it lives until the last pinned array is gone.
"""

from __future__ import annotations

import contextlib
import weakref
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from octavo.platforms.gpu.calls import NO_DEVICE, Calls, DriverError, as_text
from octavo.platforms.gpu.device import DeviceFacts
from octavo.platforms.gpu.driver import DriverDevice
from octavo.platforms.gpu.pinned import PinnedPool

KIND = "cuda"
PACKAGE = "cuda-bindings"
_END_OF_ARGUMENTS = 0  # CU_LAUNCH_PARAM_END


def load_api() -> Any:
    """The binding, cuda.bindings.driver. ImportError where there is none."""
    return import_module("cuda.bindings.driver")


def binding_release(api: Any) -> tuple[int, int]:
    """(major, minor) of the CUDA release that the binding was made for; (0, 0) where it does not say."""
    return _split(int(getattr(api, "CUDA_VERSION", 0)))


def driver_release(api: Any) -> tuple[int, int]:
    """(major, minor) of the newest CUDA release that the driver knows."""
    return _split(int(cuda_calls(api, "CUDA").call("cuDriverGetVersion")))


def _split(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


def cuda_calls(api: Any, where: str) -> Calls:
    """The driver's functions, checked."""

    def explain(code: Any) -> str:
        return f"{getattr(code, 'name', code)}: {as_text(api.cuGetErrorString(code)[1])}"

    return Calls(api, where, explain)


def list_devices(api: Any) -> list[DeviceFacts]:
    """All that this process may use. DriverError if the driver cannot be started."""
    calls = cuda_calls(api, "CUDA")
    try:
        calls.call("cuInit", 0)
        count = int(calls.call("cuDeviceGetCount"))
    except DriverError as error:
        if error.code == NO_DEVICE:
            return []
        raise
    driver = "CUDA {}.{}".format(*driver_release(api))
    try:
        library = f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        library = PACKAGE
    return [_facts(calls, index, driver, library) for index in range(count)]


def _facts(calls: Calls, index: int, driver: str, library: str) -> DeviceFacts:
    device = calls.call("cuDeviceGet", index)
    names = calls.api.CUdevice_attribute

    def attribute(name: str) -> int:
        return int(calls.call("cuDeviceGetAttribute", getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    return DeviceFacts(
        kind=KIND,
        index=index,
        name=as_text(calls.call("cuDeviceGetName", 256, device)),
        arch=f"sm_{major}{minor}",
        wave=attribute("WARP_SIZE"),
        num_units=attribute("MULTIPROCESSOR_COUNT"),
        shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        memory_bytes=int(calls.call("cuDeviceTotalMem", device)),
        driver=driver,
        library=library,
        is_integrated=bool(attribute("INTEGRATED")),
    )


class PrimaryContext:
    """The device's context, released when nobody refers to it."""

    def __init__(self, calls: Calls, index: int) -> None:
        device = calls.call("cuDeviceGet", index)
        self._context = calls.call("cuDevicePrimaryCtxRetain", device)
        self._set = calls.bind("cuCtxSetCurrent")
        weakref.finalize(self, _release, calls, device).atexit = False

    def enter(self) -> None:
        """Makes it the calling thread's."""
        self._set(self._context)


def _release(calls: Calls, device: Any) -> None:
    with contextlib.suppress(Exception):
        calls.call("cuDevicePrimaryCtxRelease", device)


class CudaDevice(DriverDevice):
    """An NVIDIA GPU. `api`: the binding, or what stands in for it in tests."""

    def __init__(self, facts: DeviceFacts, api: Any = None) -> None:
        api = load_api() if api is None else api
        super().__init__(facts, cuda_calls(api, f"{KIND}:{facts.index}"), _END_OF_ARGUMENTS)
        bind = self._calls.bind
        self._calls.call("cuInit", 0)
        self._context: PrimaryContext | None = PrimaryContext(self._calls, facts.index)
        self._set_current()
        self._stream = self._calls.call("cuStreamCreate", int(api.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self._mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._mem_alloc, self._mem_free = bind("cuMemAlloc"), bind("cuMemFree")
        self._up, self._down, self._within = (
            bind("cuMemcpyHtoDAsync"), bind("cuMemcpyDtoHAsync"), bind("cuMemcpyDtoDAsync")
        )  # fmt: skip
        self._memset = bind("cuMemsetD8Async")
        self._launch_kernel, self._graph_launch = bind("cuLaunchKernel"), bind("cuGraphLaunch")
        self._stream_synchronize = bind("cuStreamSynchronize")
        self._event_record = bind("cuEventRecord")
        host_alloc, host_free = bind("cuMemHostAlloc"), bind("cuMemFreeHost")
        self._ready(PinnedPool(self._context.enter, lambda size: int(host_alloc(size, 0)), lambda at: host_free(at)))

    def _set_current(self) -> None:
        if self._context is not None:
            self._context.enter()

    def _alloc(self, num_bytes: int) -> int:
        return int(self._mem_alloc(num_bytes))

    def _free(self, address: int) -> None:
        self._mem_free(address)

    def _to_device(self, address: int, source: int, num_bytes: int) -> None:
        self._up(address, source, num_bytes, self._stream)  # pageable memory is staged before the call returns

    def _to_host(self, target: int, address: int, num_bytes: int) -> None:
        self._down(target, address, num_bytes, self._stream)

    def _copy(self, target: int, source: int, num_bytes: int) -> None:
        self._within(target, source, num_bytes, self._stream)

    def _zero(self, address: int, num_bytes: int) -> None:
        self._memset(address, 0, num_bytes, self._stream)

    def _load(self, image: int) -> Any:
        return self._calls.call("cuModuleLoadData", image)

    def _unload(self, module: Any) -> None:
        self._calls.call("cuModuleUnload", module)

    def _function(self, module: Any, name: bytes) -> Any:
        return self._calls.call("cuModuleGetFunction", module, name)

    def _launch(self, function: Any, grid: tuple[int, int, int], threads: int, extra: int, shared_bytes: int) -> None:
        x, y, z = grid
        self._launch_kernel(function, x, y, z, threads, 1, 1, shared_bytes, self._stream, None, extra)

    def _allow_shared(self, function: Any, num_bytes: int) -> None:
        attribute = self._calls.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._calls.call("cuFuncSetAttribute", function, attribute, num_bytes)

    def _begin_recording(self) -> None:
        self._calls.call("cuStreamBeginCapture", self._stream, self._mode)

    def _end_recording(self) -> Any:
        return self._calls.call("cuStreamEndCapture", self._stream)

    def _make_graph(self, recorded: Any) -> Any:
        return self._calls.call("cuGraphInstantiate", recorded, 0)

    def _drop_recorded(self, recorded: Any) -> None:
        self._calls.call("cuGraphDestroy", recorded)

    def _launch_graph(self, graph: Any) -> None:
        self._graph_launch(graph, self._stream)

    def _destroy_graph(self, graph: Any) -> None:
        self._calls.call("cuGraphExecDestroy", graph)

    def _synchronize(self) -> None:
        self._stream_synchronize(self._stream)

    def _make_event(self) -> Any:
        return self._calls.call("cuEventCreate", 0)

    def _record_event(self, event: Any) -> None:
        self._event_record(event, self._stream)

    def _seconds_between(self, start: Any, end: Any) -> float:
        self._calls.call("cuEventSynchronize", end)
        return float(self._calls.call("cuEventElapsedTime", start, end)) / 1000

    def _destroy_event(self, event: Any) -> None:
        self._calls.call("cuEventDestroy", event)

    def _memory(self) -> tuple[int, int]:
        free, total = self._calls.call("cuMemGetInfo")
        return int(free), int(total)

    def _leave(self) -> None:
        try:
            self._calls.call("cuStreamDestroy", self._stream)
        finally:
            self._context = None


def open_device(facts: DeviceFacts) -> CudaDevice:
    """A device that `list_devices` found."""
    return CudaDevice(facts)
