"""The module of native kernels of this machine's processor."""

from __future__ import annotations

import platform as machine_info
from importlib import import_module
from types import ModuleType

from octavo.engine.errors import PlatformError

#: machine as the system names it -> native module
MODULES = {"x86_64": "octavo._avx", "AMD64": "octavo._avx", "aarch64": "octavo._neon", "arm64": "octavo._neon"}


def native_module() -> str:
    """The name of this machine's native module; PlatformError where there is none."""
    machine = machine_info.machine()
    if machine not in MODULES:
        raise PlatformError(f"there are no native kernels for {machine}, only for {', '.join(MODULES)}")
    return MODULES[machine]


def load(module: str = "") -> ModuleType:
    """A native module, without a name the one of this machine; a missing or broken one is a PlatformError with the reason."""
    module = module or native_module()
    try:
        return import_module(module)
    except ImportError as error:
        raise PlatformError(
            f"the kernels of {module} cannot be loaded: {error}; reinstall octavo, or set OCTAVO_PLATFORM=reference"
        ) from error
