"""The ordered list of platforms: first that works wins, or the one asked for, with every refusal's reason.

A platform's module is imported only when its turn comes, so that a missing library is a reason, never a crash.
"""

from __future__ import annotations

import platform as machine_info
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from octavo.engine.errors import ConfigError, PlatformError
from octavo.platforms.platform import Platform


@dataclass(frozen=True)
class Entry:
    """A platform by name: `probe` says why it cannot run here ('' = it can), `make` builds it. `machines`: the only kinds of
    machine that it is for, by the system's names; on others nobody need be told that it is passed over (empty: on all)."""

    name: str
    probe: Callable[[], str]
    make: Callable[[int, tuple[str, ...] | None, str], Platform]
    machines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """The platform in use and why the ones before it were passed over."""

    platform: Platform
    refused: tuple[tuple[str, str], ...]


def _probe_native(*machines: str) -> Callable[[], str]:
    """Whether this is such a machine and its module can be loaded."""

    def probe() -> str:
        if machine_info.machine() not in machines:
            return f"this machine is {machine_info.machine()}"
        try:
            from octavo.platforms.cpu.module import load

            load()
        except PlatformError as error:
            return str(error)
        return ""

    return probe


def _make_arm(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> Platform:
    from octavo.platforms.arm.platform import ArmPlatform

    return ArmPlatform(num_threads, isa, numerics=numerics)


def _make_x86(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> Platform:
    from octavo.platforms.x86.platform import X86Platform

    return X86Platform(num_threads, isa, numerics=numerics)


def _probe_portable() -> str:
    if find_spec("numba") is None:
        return "numba is not installed: pip install numba"
    try:
        import numba  # noqa: F401 - only here, where the platform's turn has come
    except Exception as error:  # numba refuses versions of numpy, of Python and of its compiler in its own ways
        return f"numba cannot be imported: {error}"
    return ""


def _make_portable(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> Platform:
    from octavo.platforms.portable.platform import PortablePlatform

    return PortablePlatform(num_threads)


def _make_reference(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> Platform:
    from octavo.platforms.reference.platform import ReferencePlatform

    return ReferencePlatform()


X86_MACHINES, ARM_MACHINES = ("x86_64", "AMD64"), ("aarch64", "arm64")
PLATFORMS: tuple[Entry, ...] = (
    Entry("x86", _probe_native(*X86_MACHINES), _make_x86, X86_MACHINES),
    Entry("arm", _probe_native(*ARM_MACHINES), _make_arm, ARM_MACHINES),
    Entry("portable", _probe_portable, _make_portable),
    Entry("reference", lambda: "", _make_reference),
)


def choose_platform(
    name: str | None, num_threads: int, isa: tuple[str, ...] | None = None, numerics: str = "exact"
) -> Chosen:
    """The platform called `name`, or the first of the list that runs here. Unknown names and refusals are errors.
    `numerics`: "exact" keeps every level to the same bits, "fast" also lets levels run that do not."""
    known = [entry.name for entry in PLATFORMS]
    if name is not None and name not in known:
        from difflib import get_close_matches  # only for this message

        close = get_close_matches(name, known, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"unknown platform {name!r}; known are {', '.join(known)}{hint}")
    refused: list[tuple[str, str]] = []
    for entry in PLATFORMS:
        if name is not None and entry.name != name:
            continue
        if name is None and entry.machines and machine_info.machine() not in entry.machines:
            continue
        reason = entry.probe()
        if not reason:
            return Chosen(entry.make(num_threads, isa, numerics), tuple(refused))
        refused.append((entry.name, reason))
    raise PlatformError("no platform runs here: " + "; ".join(f"{n}: {why}" for n, why in refused))
