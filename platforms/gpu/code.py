"""Where code objects are, which of them fit a chip, and a module made of them.

They come in data wheels, `octavo-rocm` and `octavo-cuda` (packages octavo_rocm and octavo_cuda), or from build/gpu of a checkout.
A folder holds one folder per arch, each with its table of kernels (`kernels.json`) and code objects.
"""

from __future__ import annotations

import logging
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.device import Device
from octavo.platforms.gpu.module import LEVELS, MMA, SIMT, GpuModule
from octavo.platforms.gpu.rows import GpuRow, digest_of, rows_of

log = logging.getLogger("octavo.platforms")
CHECKOUT = Path(__file__).resolve().parents[2] / "build/gpu"


def find(kind: str) -> Path | None:
    """The folder with the archs of a kind (rocm, cuda), or None."""
    spec = find_spec(f"octavo_{kind}")
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return next((p for p in (*map(Path, places), CHECKOUT / kind) if archs_in(p)), None)


def mismatch(kind: str) -> str:
    """Why the installed code objects are not those of this octavo ('' = they are, or none are installed)."""
    from octavo import __version__ as ours

    try:
        theirs = version(f"octavo-{kind}")
    except PackageNotFoundError:
        return ""
    if theirs == ours:
        return ""
    return f"octavo-{kind} {theirs} is not of this octavo, {ours}; pip install 'octavo-{kind}=={ours}'"


def archs_in(folder: Path) -> list[str]:
    """Archs that a folder has code for."""
    return sorted(table.parent.name for table in folder.glob("*/kernels.json"))


def features_of(arch: str) -> int:
    """What kernels may rest on there. Code objects hold no kernel that their arch cannot run; this says it for `doctor`."""
    has_matrix_units = arch.startswith(("gfx90a", "gfx94", "gfx95", "gfx11", "gfx12", "sm_", "wave"))
    return SIMT | (MMA if has_matrix_units else 0)


def open_module(device: Device, folder: Path) -> GpuModule:
    """Loads a folder's code objects on a device. PlatformError if the table is not one of this version, or a code object is gone
    or not the one that the table was written for: drivers are told where one begins, not where it ends."""
    kind = device.facts.kind
    try:
        rows = rows_of(folder)
        if odd := next((row for row in rows if row.level not in LEVELS), None):
            raise ValueError(f"{odd.name} is of level {odd.level}, levels are {', '.join(LEVELS)}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PlatformError(
            f"the table of kernels in {folder} cannot be read: {_words(error)}; reinstall octavo-{kind}"
        ) from error
    rows = [row for row in rows if row.only in ("", device.facts.arch)]
    own = [row for row in rows if row.level != "triton"]
    images = {row.file: _image(folder, row, kind) for row in rows}  # all are looked at before one is loaded
    codes = {name: device.load(images[name]) for name in sorted({row.file for row in own})}
    module = GpuModule(device, own, codes, features_of(device.facts.arch))
    for row in rows:
        if row.level == "triton":
            _add_made(module, row, images[row.file])
    return module


def _image(folder: Path, row: GpuRow, kind: str) -> bytes:
    """The code object that holds a kernel, whole."""
    try:
        image = (folder / row.file).read_bytes()
    except OSError as error:
        raise PlatformError(
            f"the code object {folder / row.file} cannot be read: {error.strerror}; reinstall octavo-{kind}"
        ) from error
    if row.digest and digest_of(image) != row.digest:
        raise PlatformError(
            f"the code object {folder / row.file} ({len(image)} bytes) is not the one that its table was written for; "
            f"reinstall octavo-{kind}"
        )
    return image


def _words(error: Exception) -> str:
    return f"a kernel lacks {error}" if isinstance(error, KeyError) else str(error)


def _add_made(module: GpuModule, row: GpuRow, image: bytes) -> None:
    """Adds a kernel made by Triton. A driver may be older than its assembler: then other kernels serve."""
    try:
        module.add(row, module.device.load(image))
    except PlatformError as error:
        log.warning("%s, a kernel made by Triton, is not used: %s", row.name, error)
