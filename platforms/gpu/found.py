"""A look at the machine for one kind of GPU: device files, the binding, the driver's answers, code objects, PyTorch.

Cheap things come first, and on a machine without a sign of such a GPU nothing is imported: three looks into /sys and /dev. `root`
and the loaders can be replaced, so that machines that nobody has can be described.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.arch import fitting
from octavo.platforms.gpu.choice import VENDORS, Found, Torch
from octavo.platforms.gpu.signs import has_signs

_PCI_VENDORS = {"cuda": "0x10de", "rocm": "0x1002"}
_PCI_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # VGA, 3D, display, accelerator
_MODULES = {"cuda": "octavo.platforms.cuda.driver", "rocm": "octavo.platforms.rocm.driver"}
_PACKAGES = {"cuda": ("cuda",), "rocm": ("rocm", "hip")}  # top levels of the bindings


def has_binding(kind: str) -> bool:
    """Whether something of the binding's name is installed, without importing it."""
    return any(find_spec(name) is not None for name in _PACKAGES[kind])


def find(kind: str, *, is_thorough: bool = False, root: Path = Path("/"), driver: Any = None) -> Found:
    """What there is. `is_thorough`: also where the kernel's driver shows no sign (it was asked for by name, or is to be told)."""
    found = Found(kind, has_driver=has_signs(kind, str(root)), is_container=_is_container(root), hiding=_hiding(kind))
    if is_thorough or found.has_driver:
        found = replace(found, on_bus=_on_bus(kind, root), num_present=_num_present(kind, root))
    else:
        return found
    found = replace(found, targets=_targets(kind), code_problem=_code_problem(kind), torch=installed_torch())
    if driver is None:
        if not has_binding(kind):
            return found
        driver = import_module(_MODULES[kind])
    found = _with_driver(found, driver, root)
    return _with_tried_torch(found) if is_thorough else found


def _with_driver(found: Found, driver: Any, root: Path) -> Found:
    """What the binding and, through it, the driver say."""
    try:
        named = version(driver.PACKAGE)
    except PackageNotFoundError:
        named = "(unknown)"
    try:
        api = driver.load_api()
    except ModuleNotFoundError as error:
        if _is_missing(error, found.kind):
            return found
        return replace(found, binding=named, binding_problem=str(error))
    except Exception as error:  # an extension that does not fit this Python or system fails in its own ways
        return replace(found, binding=named, binding_problem=" ".join(str(error).split()))
    found = replace(
        found, binding=named, closed_files=_closed_files(found.kind, root), binding_release=driver.binding_release(api)
    )
    if found.closed_files:
        return found
    try:
        found = replace(found, driver_release=driver.driver_release(api))
        return replace(found, devices=tuple(driver.list_devices(api)))
    except PlatformError as error:
        return replace(found, driver_problem=str(error))


def _with_tried_torch(found: Found) -> Found:
    """Where no code object fits, a PyTorch for such GPUs would do instead, if it works: importing it takes seconds."""
    torch, targets = found.torch, found.targets or ()
    is_wanted = found.devices and not any(fitting(device.arch, targets) for device in found.devices)
    if torch is None or torch.kind != found.kind or not is_wanted:
        return found
    return replace(found, torch=replace(torch, problem=torch_problem()))


def torch_problem() -> str:
    """Why the installed PyTorch cannot use a GPU ('' = it can)."""
    try:
        has_gpu = import_module("octavo.platforms.gpu.torch_base.runtime").torch.cuda.is_available()
    except Exception as error:  # a build for another system fails in its own ways
        return f"it cannot be imported: {' '.join(str(error).split())}"
    return "" if has_gpu else "it reaches no GPU"


def _is_missing(error: ModuleNotFoundError, kind: str) -> bool:
    """Another package may hold the top level's name: cuda.pathfinder has no bindings."""
    return (error.name or "") in (*_PACKAGES[kind], "cuda.bindings", "cuda.bindings.driver", "rocm.bindings")


def _hiding(kind: str) -> dict[str, str]:
    get: Mapping[str, Callable[[], str | None]] = {
        "CUDA_VISIBLE_DEVICES": lambda: os.environ.get("CUDA_VISIBLE_DEVICES"),
        "HIP_VISIBLE_DEVICES": lambda: os.environ.get("HIP_VISIBLE_DEVICES"),
        "ROCR_VISIBLE_DEVICES": lambda: os.environ.get("ROCR_VISIBLE_DEVICES"),
        "GPU_DEVICE_ORDINAL": lambda: os.environ.get("GPU_DEVICE_ORDINAL"),
    }
    values = {name: get[name]() for name in VENDORS[kind].variables}
    return {name: value for name, value in values.items() if value is not None}


def _is_container(root: Path) -> bool:
    return any((root / sign).exists() for sign in (".dockerenv", "run/.containerenv", "run/secrets/kubernetes.io"))


def _on_bus(kind: str, root: Path) -> tuple[str, ...]:
    """GPUs of the vendor by PCI address and ids."""
    seen = []
    with suppress(OSError):
        for device in sorted((root / "sys/bus/pci/devices").iterdir()):
            with suppress(OSError):
                is_ours = (device / "vendor").read_text().strip() == _PCI_VENDORS[kind]
                if is_ours and (device / "class").read_text().startswith(_PCI_CLASSES):
                    number = (device / "device").read_text().strip().removeprefix("0x")
                    seen.append(f"{VENDORS[kind].vendor} device {number} at {device.name}")
    return tuple(seen)


def _num_present(kind: str, root: Path) -> int:
    """Devices of the kernel's driver: nodes of the kfd that are no processors, or NVIDIA's numbered files."""
    count = 0
    with suppress(OSError):
        if kind == "rocm":
            for node in (root / "sys/class/kfd/kfd/topology/nodes").iterdir():
                with suppress(OSError):
                    count += (node / "gpu_id").read_text().strip() not in ("", "0")
        else:
            count = sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in (root / "dev").iterdir())
    return count


def _closed_files(kind: str, root: Path) -> tuple[str, ...]:
    """Device files that are there and cannot be opened: the kfd, or every render node."""
    if kind == "rocm":
        kfd, nodes = root / "dev/kfd", sorted((root / "dev/dri").glob("renderD*"))
        closed = [kfd] if kfd.exists() and not _opens(kfd) else []
        if nodes and not any(map(_opens, nodes)):
            closed += nodes
    else:
        closed = [path for path in [root / "dev/nvidiactl"] if path.exists() and not _opens(path)]
    return tuple(f"/{path.relative_to(root)}" for path in closed)


def _opens(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _targets(kind: str) -> tuple[str, ...] | None:
    try:
        code: Any = import_module("octavo.platforms.gpu.code")
    except ModuleNotFoundError:
        return None
    folder = code.find(kind)
    return None if folder is None else tuple(code.archs_in(folder))


def _code_problem(kind: str) -> str:
    try:
        code: Any = import_module("octavo.platforms.gpu.code")
    except ModuleNotFoundError:
        return ""
    return str(code.mismatch(kind))


def installed_torch() -> Torch | None:
    """Which PyTorch is installed, by its version file: importing it takes seconds."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    text = ""
    with suppress(OSError):
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()
    return torch_of(text)


def torch_of(text: str) -> Torch | None:
    """Of the text of torch/version.py."""
    values = dict(re.findall(r"^(__version__|cuda|hip)\b[^=\n]*= *'([^']*)'", text, re.MULTILINE))
    if "__version__" not in values:
        return None
    kind = "rocm" if values.get("hip") else "cuda" if values.get("cuda") else ""
    return Torch(values["__version__"], kind)
