"""Stand-ins for hip-python and cuda-bindings over any library with the driver's C interface.

One line per function: its parameters in C's order, with the binding's names; `>` marks what the binding returns. Types: i int,
u unsigned, z size_t, q uint64, p pointer, c text, f float. A test compares names and order with the installed bindings.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

TYPES = {
    "i": ctypes.c_int, "u": ctypes.c_uint, "z": ctypes.c_size_t, "q": ctypes.c_uint64, "p": ctypes.c_void_p,
    "c": ctypes.c_char_p, "f": ctypes.c_float,
}  # fmt: skip
LAUNCH = "f:p gridDimX:u gridDimY:u gridDimZ:u blockDimX:u blockDimY:u blockDimZ:u sharedMemBytes:u"
HIP = f"""
hipGetDeviceCount >i
hipRuntimeGetVersion >i
hipSetDevice deviceId:i
hipMemGetInfo >z >z
hipMalloc >p size:z
hipFree ptr:p
hipHostMalloc >p size:z flags:u
hipHostFree ptr:p
hipMemcpyAsync dst:p src:p sizeBytes:z kind:i stream:p
hipMemsetAsync dst:p value:i sizeBytes:z stream:p
hipStreamCreateWithFlags >p flags:u
hipStreamDestroy stream:p
hipStreamSynchronize stream:p
hipStreamBeginCapture stream:p mode:i
hipStreamEndCapture stream:p >p
hipGraphInstantiateWithFlags >p graph:p flags:q
hipGraphLaunch graphExec:p stream:p
hipGraphDestroy graph:p
hipGraphExecDestroy graphExec:p
hipEventCreateWithFlags >p flags:u
hipEventRecord event:p stream:p
hipEventSynchronize event:p
hipEventElapsedTime >f start:p stop:p
hipEventDestroy event:p
hipModuleLoadData >p image:p
hipModuleUnload module:p
hipModuleGetFunction >p module:p kname:c
hipModuleLaunchKernel {LAUNCH} stream:p kernelParams:p extra:p
"""
CUDA = f"""
cuInit Flags:u
cuDriverGetVersion >i
cuDeviceGetCount >i
cuDeviceGet >i ordinal:i
cuDeviceTotalMem >z dev:i
cuDeviceGetAttribute >i attrib:i dev:i
cuDevicePrimaryCtxRetain >p dev:i
cuDevicePrimaryCtxRelease dev:i
cuCtxSetCurrent ctx:p
cuMemGetInfo >z >z
cuMemAlloc >q bytesize:z
cuMemFree dptr:q
cuMemHostAlloc >p bytesize:z Flags:u
cuMemFreeHost p:p
cuMemcpyHtoDAsync dstDevice:q srcHost:p ByteCount:z hStream:p
cuMemcpyDtoHAsync dstHost:p srcDevice:q ByteCount:z hStream:p
cuMemcpyDtoDAsync dstDevice:q srcDevice:q ByteCount:z hStream:p
cuMemsetD8Async dstDevice:q uc:i N:z hStream:p
cuStreamCreate >p Flags:u
cuStreamDestroy hStream:p
cuStreamSynchronize hStream:p
cuStreamBeginCapture hStream:p mode:i
cuStreamEndCapture hStream:p >p
cuGraphInstantiate >p hGraph:p flags:q
cuGraphLaunch hGraphExec:p hStream:p
cuGraphDestroy hGraph:p
cuGraphExecDestroy hGraphExec:p
cuEventCreate >p Flags:u
cuEventRecord hEvent:p hStream:p
cuEventSynchronize hEvent:p
cuEventElapsedTime >f hStart:p hEnd:p
cuEventDestroy hEvent:p
cuModuleLoadData >p image:p
cuModuleUnload hmod:p
cuModuleGetFunction >p hmod:p name:c
cuFuncSetAttribute hfunc:p attrib:i value:i
cuLaunchKernel {LAUNCH} hStream:p kernelParams:p extra:p
"""
SYMBOLS = {"cuGraphInstantiate": "cuGraphInstantiateWithFlags"}  # what the binding calls it
ATTRIBUTES = {
    "MAX_SHARED_MEMORY_PER_BLOCK": 8, "WARP_SIZE": 10, "MULTIPROCESSOR_COUNT": 16, "INTEGRATED": 18,
    "COMPUTE_CAPABILITY_MAJOR": 75, "COMPUTE_CAPABILITY_MINOR": 76,
}  # fmt: skip


class Result(IntEnum):
    """Error codes; others are refused, as the bindings do."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    NO_DEVICE = 100
    INVALID_IMAGE = 200
    NOT_FOUND = 500
    LAUNCH_FAILED = 719


def rows(table: str) -> dict[str, list[str]]:
    """Function -> its words."""
    return {words[0]: words[1:] for words in (line.split() for line in table.strip().splitlines())}


def parameters(words: list[str]) -> list[str]:
    """The names that the binding's function takes."""
    return [word.partition(":")[0] for word in words if word[0] != ">"]


def _wrapped(library: ctypes.CDLL, name: str, words: list[str]) -> Any:
    function = getattr(library, SYMBOLS.get(name, name))
    num_inputs = len(parameters(words))

    def call(*given: Any) -> tuple[Any, ...]:
        if len(given) != num_inputs:
            raise TypeError(f"{name} takes {num_inputs} arguments, {len(given)} were given")
        inputs, outputs, arguments = iter(given), [], []
        for word in words:
            kind = TYPES[word[-1]]
            if word[0] == ">":
                outputs.append(kind())
                arguments.append(ctypes.byref(outputs[-1]))
            else:
                arguments.append(kind(next(inputs)))
        code = Result(function(*arguments))
        return (code, *(made.value for made in outputs))

    return call


def binding(kind: str, library: ctypes.CDLL) -> Any:
    """What `load_api` of the kind's driver would give."""
    api: Any = SimpleNamespace()
    for name, words in rows(HIP if kind == "rocm" else CUDA).items():
        setattr(api, name, _wrapped(library, name, words))
    if kind == "rocm":
        _finish_hip(api, library)
    else:
        _finish_cuda(api, library)
    return api


def _finish_hip(api: Any, library: ctypes.CDLL) -> None:
    def properties(device: int) -> tuple[Any, ...]:
        raw = ctypes.create_string_buffer(1472)
        code = Result(library.hipGetDevicePropertiesR0600(raw, device))

        def number(at: int, kind: Any) -> int:
            return int(kind.from_buffer(raw, at).value)

        return code, SimpleNamespace(
            name=raw.raw[:256].split(b"\0")[0],
            gcnArchName=raw.raw[1160:1416].split(b"\0")[0],
            totalGlobalMem=number(288, ctypes.c_size_t),
            sharedMemPerBlock=number(296, ctypes.c_size_t),
            warpSize=number(308, ctypes.c_int),
            multiProcessorCount=number(388, ctypes.c_int),
            integrated=number(396, ctypes.c_int),
        )

    library.hipGetErrorString.restype = ctypes.c_char_p
    api.hipGetDeviceProperties = properties
    api.hipGetErrorString = lambda code: (Result.SUCCESS, library.hipGetErrorString(int(code)))
    api.hipStreamNonBlocking = 1
    api.hipMemcpyKind = SimpleNamespace(hipMemcpyHostToDevice=1, hipMemcpyDeviceToHost=2, hipMemcpyDeviceToDevice=3)
    api.hipStreamCaptureMode = SimpleNamespace(hipStreamCaptureModeThreadLocal=1)


def _finish_cuda(api: Any, library: ctypes.CDLL) -> None:
    def name_of(length: int, dev: int) -> tuple[Any, ...]:
        raw = ctypes.create_string_buffer(length)
        return Result(library.cuDeviceGetName(raw, length, dev)), raw.raw

    def words(error: Any) -> tuple[Any, ...]:
        text = ctypes.c_char_p()
        return Result(library.cuGetErrorString(int(error), ctypes.byref(text))), text.value

    api.cuDeviceGetName, api.cuGetErrorString = name_of, words
    api.CUDA_VERSION = 13000
    api.CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    api.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
    api.CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    api.CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": at for name, at in ATTRIBUTES.items()})
