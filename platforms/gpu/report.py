"""The GPUs of a machine for `octavo doctor`, as plain data: every device, and of each kind why it is or is not used."""

from __future__ import annotations

from typing import Any

from octavo.platforms.gpu.arch import fitting, float8, has_mx
from octavo.platforms.gpu.choice import VENDORS, Found, choose
from octavo.platforms.gpu.found import find


def report() -> dict[str, Any]:
    """Looks thoroughly, so bindings that are installed are imported."""
    return described([find(kind, is_thorough=True) for kind in VENDORS])


def described(kinds: list[Found]) -> dict[str, Any]:
    """`devices`: one row per device; and by kind which is used, or why none is. Sizes in bytes."""
    rows = [_device(found, at) for found in kinds for at in range(len(found.devices))]
    return {"devices": rows, **{found.kind: _kind(found) for found in kinds}}


def _device(found: Found, at: int) -> dict[str, Any]:
    device = found.devices[at]
    targets = found.targets or ()
    code = fitting(device.arch, targets)
    return {
        "device": f"{device.kind}:{device.index}",
        "name": device.name,
        "arch": device.arch,
        "memory_bytes": device.memory_bytes,
        "units": device.num_units,
        "is_integrated": device.is_integrated,
        "driver": device.driver,
        "library": device.library,
        "float8": float8(device.arch),
        "mx": has_mx(device.arch),
        "code": code or choose(found, device.index).refusal,
    }


def _kind(found: Found) -> dict[str, Any]:
    choice = choose(found)
    used = "" if choice.device is None else f"{choice.device.kind}:{choice.device.index}"
    torch = found.torch
    out: dict[str, Any] = {"used": used, "reason": choice.refusal}
    if choice.notes:
        out["notes"] = list(choice.notes)
    if found.targets:
        out["code"] = list(found.targets)
    if torch is not None:
        out["torch"] = f"{torch.version} for {torch.kind or 'cpu'}"
    return out
