"""What drivers of GPUs have in common: one queue, memory, launches through one argument buffer, recorded graphs, an end.

A vendor's device fills in the calls (platforms/rocm, platforms/cuda). A launch costs one copy of its parameters into a buffer
that is always the same and one call of the binding; everything else about it is prepared when the device is opened.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.calls import NOT_FOUND, OUT_OF_MEMORY, Calls, DriverError
from octavo.platforms.gpu.device import DeviceFacts
from octavo.platforms.gpu.memory import DeviceMemory
from octavo.platforms.gpu.pinned import PinnedPool
from octavo.platforms.gpu.staging import MAX_STAGED, STAGING_BYTES, Staging

log = logging.getLogger("octavo.platforms")
MAX_ARGUMENT_BYTES = 4096  # of one launch; both vendors' limit
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2  # CU_LAUNCH_PARAM_*, HIP_LAUNCH_PARAM_*: the same numbers but for the end's


class Arguments:
    """The `extra` array of a launch: where the parameters lie and how many bytes they are. `end`: the vendor's last word."""

    def __init__(self, end: int) -> None:
        self._buffer = ctypes.create_string_buffer(MAX_ARGUMENT_BYTES + 64)
        base = ctypes.addressof(self._buffer)
        skipped = -base % 64  # aligned for any parameter
        self._bytes = memoryview(self._buffer).cast("B")[skipped : skipped + MAX_ARGUMENT_BYTES]
        self._size = ctypes.c_size_t(0)
        words = (_BUFFER_POINTER, base + skipped, _BUFFER_SIZE, ctypes.addressof(self._size), end)
        self._extra = (ctypes.c_void_p * len(words))(*words)
        self.address = ctypes.addressof(self._extra)

    def set(self, arguments: bytes) -> int:
        """Takes the parameters of the next launch; the address of `extra`. The driver copies them in the call."""
        size = len(arguments)
        if size > MAX_ARGUMENT_BYTES:
            raise PlatformError(f"a launch has {size} bytes of parameters; at most {MAX_ARGUMENT_BYTES} are allowed")
        self._bytes[:size] = arguments
        self._size.value = size
        return self.address


class DriverCode:
    """A loaded code object, which lives as long as its device is open."""

    def __init__(self, device: DriverDevice, module: Any) -> None:
        self._device = device
        self._module = module

    def function(self, name: str, shared_bytes: int = 0) -> Any:
        """The kernel of this name. PlatformError if there is none."""
        self._device.enter()
        try:
            found = self._device._function(self._module, name.encode())
        except DriverError as error:
            if error.code != NOT_FOUND:
                raise
            raise PlatformError(
                f"{self._device.name}: the code object for {self._device.facts.arch} has no kernel {name}; install octavo and "
                "its code objects in one version"
            ) from error
        if shared_bytes:
            self._device._allow_shared(found, shared_bytes)
        return found


class DriverGraph:
    """Recorded launches, ready to run."""

    def __init__(self, device: DriverDevice, graph: Any) -> None:
        self._device = device
        self._graph = graph

    def launch(self) -> None:
        """Puts all of it in the queue."""
        if self._graph is None:
            raise PlatformError(f"{self._device.name}: the graph is closed; record it again")
        self._device.enter_quickly()
        self._device._launch_graph(self._graph)

    def close(self) -> None:
        """Gives it back, when the queue is done with it. Nothing happens the second time."""
        graph, self._graph = self._graph, None
        if graph is not None:
            self._device._drop_graph(graph)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class DriverDevice(ABC):
    """Implements `octavo.platforms.gpu.device.Device` over a vendor's calls. Nothing is global; a closed device refuses use."""

    def __init__(self, facts: DeviceFacts, calls: Calls, end_of_arguments: int) -> None:
        self.facts = facts
        self.name = f"{facts.kind}:{facts.index}"
        self._calls = calls
        self._arguments = Arguments(end_of_arguments)
        self._is_open = False  # until `_ready`
        self._is_recording = False
        self._thread = 0
        self._blocks = DeviceMemory(self._alloc, self._free)
        self._staging: Staging | None = None
        self._modules: list[
            tuple[Any, mmap.mmap]
        ] = []  # with their images: a driver may read one when a kernel is first used
        self._graphs: dict[int, Any] = {}  # by id
        self._dropped_graphs: list[Any] = []
        self._events: tuple[Any, Any] | None = None

    # -- the vendor's calls ---------------------------------------------------------------------------------------------
    @abstractmethod
    def _set_current(self) -> None: ...
    @abstractmethod
    def _alloc(self, num_bytes: int) -> int: ...
    @abstractmethod
    def _free(self, address: int) -> None: ...
    @abstractmethod
    def _to_device(self, address: int, source: int, num_bytes: int) -> None: ...
    @abstractmethod
    def _to_host(self, target: int, address: int, num_bytes: int) -> None: ...
    @abstractmethod
    def _copy(self, target: int, source: int, num_bytes: int) -> None: ...
    @abstractmethod
    def _zero(self, address: int, num_bytes: int) -> None: ...
    @abstractmethod
    def _load(self, image: int) -> Any: ...
    @abstractmethod
    def _unload(self, module: Any) -> None: ...
    @abstractmethod
    def _function(self, module: Any, name: bytes) -> Any: ...
    @abstractmethod
    def _launch(
        self, function: Any, grid: tuple[int, int, int], threads: int, extra: int, shared_bytes: int
    ) -> None: ...
    @abstractmethod
    def _allow_shared(self, function: Any, num_bytes: int) -> None:
        """Before launches of a kernel ask for so much shared memory."""
        ...

    @abstractmethod
    def _begin_recording(self) -> None: ...
    @abstractmethod
    def _end_recording(self) -> Any: ...
    @abstractmethod
    def _make_graph(self, recorded: Any) -> Any: ...
    @abstractmethod
    def _drop_recorded(self, recorded: Any) -> None: ...
    @abstractmethod
    def _launch_graph(self, graph: Any) -> None: ...
    @abstractmethod
    def _destroy_graph(self, graph: Any) -> None: ...
    @abstractmethod
    def _synchronize(self) -> None: ...
    @abstractmethod
    def _make_event(self) -> Any: ...
    @abstractmethod
    def _record_event(self, event: Any) -> None: ...
    @abstractmethod
    def _seconds_between(self, start: Any, end: Any) -> float:
        """Waits for `end`."""
        ...

    @abstractmethod
    def _destroy_event(self, event: Any) -> None: ...
    @abstractmethod
    def _memory(self) -> tuple[int, int]: ...
    @abstractmethod
    def _leave(self) -> None:
        """The last call: the queue and the device's context go."""
        ...

    # -- its state -------------------------------------------------------------------------------------------------------
    def _ready(self, pool: PinnedPool) -> None:
        """The vendor's part is open."""
        self._pool = pool
        self._is_open = True

    def enter(self) -> None:
        """Makes the device the calling thread's. PlatformError if it is closed."""
        if not self._is_open:
            raise PlatformError(f"{self.name} is closed; open it again")
        self._set_current()
        self._thread = threading.get_ident()

    def enter_quickly(self) -> None:
        """The same for what is called often: trusts a thread that was here last."""
        if not self._is_open or self._thread != threading.get_ident():
            self.enter()

    def _enter_idle(self, what: str) -> None:
        """`enter` for what no graph can hold."""
        self.enter()
        if self._is_recording:
            raise PlatformError(
                f"{self.name}: {what} while launches are recorded; a graph holds launches and copies within the device"
            )

    # -- memory ------------------------------------------------------------------------------------------------------------
    def alloc(self, num_bytes: int) -> int:
        """Device memory, aligned to 256 bytes."""
        self._enter_idle("memory is asked for")
        try:
            return self._blocks.take(num_bytes)
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
        self._settle()  # what was given back may be enough
        self._blocks.trim()
        try:
            return self._blocks.take(num_bytes)
        except DriverError as error:
            raise self._too_little(num_bytes) if error.code == OUT_OF_MEMORY else error from error

    def _too_little(self, num_bytes: int) -> PlatformError:
        free, total = self._memory()
        return PlatformError(
            f"{self.name} ({self.facts.name}): {num_bytes} bytes of device memory were asked for, {free} of {total} are free; "
            "end what else uses the device, or take a smaller or quantized model, fewer sequences or a smaller KV pool (--kv-gib)"
        )

    def free(self, address: int) -> None:
        """Gives memory back, once what is in the queue is done with it. Never waits; a closed device has given all back."""
        if self._is_open and not self._blocks.give(address):
            raise PlatformError(f"{self.name}: {address:#x} is no memory of this device's; it can be given back once")

    def pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        """Host memory that copies are fastest with."""
        self._enter_idle("pinned memory is asked for")
        return self._pool.array(num_bytes)

    def write(self, address: int, data: NDArray[np.uint8]) -> None:
        """Host bytes to the device, in the queue's order."""
        self._enter_idle("host bytes are written")
        if not data.flags.c_contiguous:
            raise PlatformError(f"{self.name}: bytes to write must lie together; copy the array first")
        size = data.nbytes
        if not size:
            return
        if size > MAX_STAGED or self._pool.has(data):
            source = data.ctypes.data
        else:
            if self._staging is None:
                self._staging = Staging(self._pool.array(STAGING_BYTES), self._synchronize)
            source = self._staging.put(data.reshape(-1).view(np.uint8))
        self._to_device(address, source, size)

    def read(self, address: int, out: NDArray[np.uint8]) -> None:
        """Device bytes to the host; waits for them."""
        self._enter_idle("device bytes are read")
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise PlatformError(f"{self.name}: bytes are read into an array that lies together and can be written")
        if out.nbytes:
            self._to_host(out.ctypes.data, address, out.nbytes)
        self._settle()

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """Within the device, in the queue's order."""
        self.enter_quickly()
        if num_bytes:
            self._copy(target, source, num_bytes)

    def zero(self, address: int, num_bytes: int) -> None:
        """Sets bytes to 0, in the queue's order."""
        self.enter_quickly()
        if num_bytes:
            self._zero(address, num_bytes)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes now, with what was given back."""
        self._enter_idle("memory is counted")
        self._settle()
        self._blocks.trim()
        return self._memory()

    # -- code ----------------------------------------------------------------------------------------------------------------
    def load(self, code: bytes) -> DriverCode:
        """Loads a code object of this chip."""
        self._enter_idle("a code object is loaded")
        image = mmap.mmap(-1, len(code) + 1)  # at a page's start, as compilers lay images out, and with a zero behind
        image.write(code)
        module = self._load(ctypes.addressof(ctypes.c_char.from_buffer(image)))
        self._modules.append((module, image))
        return DriverCode(self, module)

    def launch(
        self, function: Any, grid: tuple[int, int, int], threads: int, arguments: bytes, shared_bytes: int = 0
    ) -> None:
        """Puts a kernel in the queue."""
        if not self._is_open or self._thread != threading.get_ident():
            self.enter()
        self._launch(function, grid, threads, self._arguments.set(arguments), shared_bytes)

    def capture(self, launches: Callable[[], None]) -> DriverGraph:
        """Records what `launches` puts in the queue."""
        self._enter_idle("a recording is begun")
        self._begin_recording()
        self._is_recording = True
        try:
            launches()
        except BaseException:
            with contextlib.suppress(PlatformError):  # what broke the recording is told, not that it is broken
                self._drop_recorded(self._end_recording())
            raise
        else:
            recorded = self._end_recording()
        finally:
            self._is_recording = False
        try:
            graph = self._make_graph(recorded)
        finally:
            self._drop_recorded(recorded)
        self._graphs[id(graph)] = graph
        return DriverGraph(self, graph)

    def _drop_graph(self, graph: Any) -> None:
        """May come from the collector, in any thread: given back when the queue is empty next, or with the device."""
        self._dropped_graphs.append(graph)

    # -- time ----------------------------------------------------------------------------------------------------------------
    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        self._enter_idle("the queue is waited for")
        self._settle()

    def _settle(self) -> None:
        self._synchronize()
        self._blocks.settle()
        if self._staging is not None:
            self._staging.settle()
        self._pool.collect()
        while self._dropped_graphs:
            graph = self._dropped_graphs.pop()
            del self._graphs[id(graph)]
            self._destroy_graph(graph)

    def seconds(self, work: Callable[[], None]) -> float:
        """The device's own time for what `work` puts in the queue."""
        self._enter_idle("time is taken")
        if self._events is None:
            self._events = (self._make_event(), self._make_event())
        start, end = self._events
        self._record_event(start)
        work()
        self.enter_quickly()
        self._record_event(end)
        return self._seconds_between(start, end)

    # -- the end ---------------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Waits, then gives everything back, memory included. Failures are logged: the device is gone either way."""
        if not self._is_open:
            return
        try:
            self.enter()
            self._settle()
        except PlatformError as error:
            log.warning("%s was closed with a failure: %s", self.name, error)
        self._is_open = False
        self._staging = None
        steps: list[Callable[[], None]] = [self._pool.close]
        steps += [partial(self._destroy_graph, graph) for graph in self._graphs.values()]
        steps += [partial(self._destroy_event, event) for event in self._events or ()]
        steps += [partial(self._unload, module) for module, _ in self._modules]
        steps += [partial(self._free, address) for address in self._blocks.addresses()]
        for step in (*steps, self._leave):
            with contextlib.suppress(PlatformError):  # after a fault of the device every call repeats it
                step()
        del self._pool  # arrays that are left keep what they need of it

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
