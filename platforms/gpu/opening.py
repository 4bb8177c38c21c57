"""From a choice to a platform: opens the device and loads the code object that was chosen for it."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.choice import Choice, shown
from octavo.platforms.platform import Platform

log = logging.getLogger("octavo.platforms")


def open_platform(choice: Choice, isa: tuple[str, ...] | None, numerics: str) -> Platform:
    """The platform on the device. PlatformError where there is none, or it fails; the device is closed then."""
    if choice.device is None:
        raise PlatformError(choice.refusal)
    kind = choice.device.kind
    code: Any = import_module("octavo.platforms.gpu.code")
    driver: Any = import_module(f"octavo.platforms.{kind}.driver")
    device = driver.open_device(choice.device)
    try:
        folder = code.find(kind) / choice.target
        made: Platform = import_module("octavo.platforms.gpu.platform").GpuPlatform(device, folder, isa, numerics)
    except BaseException:
        device.close()
        raise
    passed = f"; {'; '.join(choice.notes)}" if choice.notes else ""
    log.info("device %s with the code object for %s%s", shown(choice.device), choice.target, passed)
    return made
