"""AMD's GPUs through hip-python, the vendor's binding of the HIP runtime (https://rocm.docs.amd.com/projects/hip-python).

The binding opens libamdhip64 at the first call, not when it is imported. Handles are its own objects; addresses may be ints.
`hipModuleLaunchKernel` takes blocks, not threads, as its grid, and copies the parameters that `extra` points to.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from octavo.platforms.gpu.calls import NO_DEVICE, Calls, DriverError, as_text
from octavo.platforms.gpu.device import DeviceFacts
from octavo.platforms.gpu.driver import DriverDevice
from octavo.platforms.gpu.pinned import PinnedPool

KIND = "rocm"
PACKAGE = "hip-python"
_END_OF_ARGUMENTS = 3  # HIP_LAUNCH_PARAM_END


def load_api() -> Any:
    """The binding: `rocm.bindings.hip` of newer releases, `hip.hip` of older ones. ImportError where there is none."""
    try:
        return import_module("rocm.bindings.hip")
    except ModuleNotFoundError as error:
        if error.name not in ("rocm", "rocm.bindings", "rocm.bindings.hip"):
            raise
    package = import_module("hip")
    if not hasattr(package, "hip"):
        raise ImportError(f"the package at {getattr(package, '__file__', '?')} is not hip-python")
    return package.hip


def binding_release(api: Any) -> tuple[int, int]:
    """(major, minor) of the HIP runtime that the binding was made for; (0, 0) where it does not say."""
    for name in ("rocm.version", "hip"):
        try:
            found = getattr(import_module(name), "HIP_VERSION_TUPLE", None)
        except ImportError:
            continue
        if found:
            return int(found[0]), int(found[1])
    return (0, 0)


def hip_calls(api: Any, where: str) -> Calls:
    """HIP's functions, checked."""

    def explain(code: Any) -> str:
        return f"{getattr(code, 'name', code)}: {as_text(api.hipGetErrorString(code)[1])}"

    return Calls(api, where, explain)


def arch_of(name: str) -> str:
    """gfx942:sramecc+:xnack- -> gfx942."""
    return name.partition(":")[0]


def shown_version(number: int) -> str:
    """70253211 -> 7.2.53211."""
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def list_devices(api: Any) -> list[DeviceFacts]:
    """All that this process may use. DriverError if the runtime cannot be started."""
    calls = hip_calls(api, "HIP")
    try:
        count = int(calls.call("hipGetDeviceCount"))
    except DriverError as error:
        if error.code == NO_DEVICE:
            return []
        raise
    driver = f"HIP {shown_version(runtime_version(api))}"
    try:
        library = f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        library = PACKAGE
    return [_facts(calls, index, driver, library) for index in range(count)]


def runtime_version(api: Any) -> int:
    """Of libamdhip64: major * 10,000,000 + minor * 100,000 + patch."""
    return int(hip_calls(api, "HIP").call("hipRuntimeGetVersion"))


def driver_release(api: Any) -> tuple[int, int]:
    """(major, minor) of libamdhip64."""
    number = runtime_version(api)
    return number // 10_000_000, number // 100_000 % 100


def _facts(calls: Calls, index: int, driver: str, library: str) -> DeviceFacts:
    found = _properties(calls, index)
    return DeviceFacts(
        kind=KIND,
        index=index,
        name=as_text(found.name),
        arch=arch_of(as_text(found.gcnArchName)),
        wave=int(found.warpSize),
        num_units=int(found.multiProcessorCount),
        shared_bytes=int(found.sharedMemPerBlock),
        memory_bytes=int(found.totalGlobalMem),
        driver=driver,
        library=library,
        is_integrated=bool(found.integrated),
    )


def _properties(calls: Calls, index: int) -> Any:
    """Newer releases of the binding return the structure, those before ROCm 10 fill one in."""
    try:
        return calls.call("hipGetDeviceProperties", index)
    except TypeError:
        found = calls.api.hipDeviceProp_t()
        calls.call("hipGetDeviceProperties", found, index)
        return found


class HipDevice(DriverDevice):
    """An AMD GPU. `api`: the binding, or what stands in for it in tests."""

    def __init__(self, facts: DeviceFacts, api: Any = None) -> None:
        api = load_api() if api is None else api
        super().__init__(facts, hip_calls(api, f"{KIND}:{facts.index}"), _END_OF_ARGUMENTS)
        bind = self._calls.bind
        self._set_device = bind("hipSetDevice")
        self._set_current()
        self._stream = self._calls.call("hipStreamCreateWithFlags", int(api.hipStreamNonBlocking))
        kinds = api.hipMemcpyKind
        self._up, self._down = kinds.hipMemcpyHostToDevice, kinds.hipMemcpyDeviceToHost
        self._within = kinds.hipMemcpyDeviceToDevice
        self._mode = api.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
        self._hip_malloc, self._hip_free = bind("hipMalloc"), bind("hipFree")
        self._memcpy, self._memset = bind("hipMemcpyAsync"), bind("hipMemsetAsync")
        self._launch_kernel, self._graph_launch = bind("hipModuleLaunchKernel"), bind("hipGraphLaunch")
        self._stream_synchronize = bind("hipStreamSynchronize")
        self._event_record = bind("hipEventRecord")
        host_malloc, host_free, set_device = bind("hipHostMalloc"), bind("hipHostFree"), self._set_device
        self._ready(
            PinnedPool(
                lambda: set_device(facts.index), lambda size: int(host_malloc(size, 0)), lambda at: host_free(at)
            )
        )

    def _set_current(self) -> None:
        self._set_device(self.facts.index)

    def _alloc(self, num_bytes: int) -> int:
        return int(self._hip_malloc(num_bytes))

    def _free(self, address: int) -> None:
        self._hip_free(address)

    def _to_device(self, address: int, source: int, num_bytes: int) -> None:
        self._memcpy(address, source, num_bytes, self._up, self._stream)  # from pageable memory it waits for itself

    def _to_host(self, target: int, address: int, num_bytes: int) -> None:
        self._memcpy(target, address, num_bytes, self._down, self._stream)

    def _copy(self, target: int, source: int, num_bytes: int) -> None:
        self._memcpy(target, source, num_bytes, self._within, self._stream)

    def _zero(self, address: int, num_bytes: int) -> None:
        self._memset(address, 0, num_bytes, self._stream)

    def _load(self, image: int) -> Any:
        return self._calls.call("hipModuleLoadData", image)

    def _unload(self, module: Any) -> None:
        self._calls.call("hipModuleUnload", module)

    def _function(self, module: Any, name: bytes) -> Any:
        return self._calls.call("hipModuleGetFunction", module, name)

    def _launch(self, function: Any, grid: tuple[int, int, int], threads: int, extra: int, shared_bytes: int) -> None:
        x, y, z = grid
        self._launch_kernel(function, x, y, z, threads, 1, 1, shared_bytes, self._stream, None, extra)

    def _allow_shared(self, function: Any, num_bytes: int) -> None:
        """Launches may ask for all that the chip has."""

    def _begin_recording(self) -> None:
        self._calls.call("hipStreamBeginCapture", self._stream, self._mode)

    def _end_recording(self) -> Any:
        return self._calls.call("hipStreamEndCapture", self._stream)

    def _make_graph(self, recorded: Any) -> Any:
        return self._calls.call("hipGraphInstantiateWithFlags", recorded, 0)

    def _drop_recorded(self, recorded: Any) -> None:
        self._calls.call("hipGraphDestroy", recorded)

    def _launch_graph(self, graph: Any) -> None:
        self._graph_launch(graph, self._stream)

    def _destroy_graph(self, graph: Any) -> None:
        self._calls.call("hipGraphExecDestroy", graph)

    def _synchronize(self) -> None:
        self._stream_synchronize(self._stream)

    def _make_event(self) -> Any:
        return self._calls.call("hipEventCreateWithFlags", 0)

    def _record_event(self, event: Any) -> None:
        self._event_record(event, self._stream)

    def _seconds_between(self, start: Any, end: Any) -> float:
        self._calls.call("hipEventSynchronize", end)
        return float(self._calls.call("hipEventElapsedTime", start, end)) / 1000

    def _destroy_event(self, event: Any) -> None:
        self._calls.call("hipEventDestroy", event)

    def _memory(self) -> tuple[int, int]:
        free, total = self._calls.call("hipMemGetInfo")
        return int(free), int(total)

    def _leave(self) -> None:
        self._calls.call("hipStreamDestroy", self._stream)


def open_device(facts: DeviceFacts) -> HipDevice:
    """A device that `list_devices` found."""
    return HipDevice(facts)
