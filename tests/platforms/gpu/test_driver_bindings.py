"""The vendors' own bindings: every function that is called is there, takes its arguments in that order, and works."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.platforms.gpu.fakes import bindings, build

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
#: the parameters' names where a binding before ROCm 10 has others
OLDER = {"hipGetDeviceProperties": (["deviceId"], ["prop", "deviceId"])}


def installed(kind: str) -> Any:
    """The binding, or the test is skipped."""
    module: Any = import_module(f"octavo.platforms.{kind}.driver")
    try:
        return module.load_api()
    except ImportError as error:
        pytest.skip(f"{module.PACKAGE} is not installed: {error}")


def called(kind: str) -> set[str]:
    """Every function of the driver that our module names."""
    text = (ROOT / "platforms" / kind / "driver.py").read_text()
    prefix = "hip" if kind == "rocm" else "cu"
    return set(re.findall(rf'"({prefix}[A-Z]\w+)"', text)) | set(re.findall(rf"\bapi\.({prefix}[A-Z]\w+)\(", text))


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_the_stand_in_has_what_is_called(kind: str) -> None:
    table = bindings.rows(bindings.HIP if kind == "rocm" else bindings.CUDA)
    by_hand = {"hipGetDeviceProperties", "hipGetErrorString", "hipDeviceProp_t", "cuDeviceGetName", "cuGetErrorString"}
    assert called(kind) - by_hand == set(table)


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_the_binding_takes_the_arguments_in_this_order(kind: str) -> None:
    api = installed(kind)
    table = bindings.rows(bindings.HIP if kind == "rocm" else bindings.CUDA)
    for name, words in table.items():
        assert list(inspect.signature(getattr(api, name)).parameters) == bindings.parameters(words), name
    if kind == "rocm":
        names = list(inspect.signature(api.hipGetDeviceProperties).parameters)
        assert names in OLDER["hipGetDeviceProperties"]
        assert list(inspect.signature(api.hipGetErrorString).parameters) == ["hipError"]
    else:
        assert list(inspect.signature(api.cuDeviceGetName).parameters) == ["length", "dev"]
        assert list(inspect.signature(api.cuGetErrorString).parameters) == ["error"]


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_the_binding_has_the_constants(kind: str) -> None:
    api = installed(kind)
    if kind == "rocm":
        kinds = api.hipMemcpyKind
        found = (kinds.hipMemcpyHostToDevice, kinds.hipMemcpyDeviceToHost, kinds.hipMemcpyDeviceToDevice)
        assert tuple(map(int, found)) == (1, 2, 3)
        assert int(api.hipStreamNonBlocking) == 1 and int(api.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal) == 1
        assert api.hipError_t(0) == 0 and not api.hipError_t(0) and api.hipError_t(2)
    else:
        assert int(api.CUstream_flags.CU_STREAM_NON_BLOCKING) == 1
        assert int(api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == 1
        assert not api.CUresult(0) and api.CUresult(2)
        for name, number in bindings.ATTRIBUTES.items():
            assert int(getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")) == number
        ends = (api.CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, api.CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)
        assert ends == (1, 2) and api.CU_LAUNCH_PARAM_END_AS_INT == 0


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_the_driver_passes_its_tests_over_the_binding(kind: str) -> None:
    """In a process of its own, whose loader finds the fake under the driver's name."""
    installed(kind)
    libraries = build.libraries()
    (libraries / "lib").mkdir(exist_ok=True)
    link = libraries / "lib" / build.SONAMES[kind]
    if not link.exists():
        link.symlink_to(libraries / build.SONAMES[kind])
    environment = os.environ | {
        "DRIVER_TESTS_BINDING": kind, "DRIVER_TESTS_LIBRARIES": str(libraries), "LD_LIBRARY_PATH": str(libraries),
        "ROCM_PATH": str(libraries),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    command += [str(HERE / name) for name in ("test_driver.py", "test_driver_memory.py", "test_driver_engine.py")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "SKIPPED" not in done.stdout


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
def test_a_machine_without_the_driver_gets_the_loaders_words(kind: str) -> None:
    installed(kind)
    code = (
        f"from octavo.platforms.{kind}.driver import list_devices, load_api\n"
        "from octavo.platforms.gpu.calls import DriverError\n"
        "try:\n    print('FOUND', len(list_devices(load_api())))\n"
        "except DriverError as error:\n    print('REFUSED', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"PYTHONPATH": "src"}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("FOUND"):
        pytest.skip("this machine has the driver")
    words = "libamdhip64.so" if kind == "rocm" else "driver"
    assert words in done.stdout


def test_modules_that_share_a_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("rocm") is not None:
        pytest.skip("the newer binding is installed, which has a name of its own")
    import types

    monkeypatch.setitem(sys.modules, "hip", types.ModuleType("hip"))
    module: Any = import_module("octavo.platforms.rocm.driver")
    with pytest.raises(ImportError, match="is not hip-python"):
        module.load_api()
