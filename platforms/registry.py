"""The ordered list of platforms: first that works wins, or the one asked for, with every refusal's reason.

A platform's module is imported only when its turn comes, so that a missing library is a reason, never a crash. GPUs come first;
on a machine without a sign of one nothing is imported for them.
"""

from __future__ import annotations

import platform as machine_info
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from octavo.engine.errors import ConfigError, PlatformError
from octavo.platforms.gpu.signs import has_signs
from octavo.platforms.platform import Platform

if TYPE_CHECKING:
    from octavo.platforms.gpu.choice import Choice


@dataclass(frozen=True)
class Entry:
    """A platform by name: `probe` says why it cannot run here ('' = it can), `make` builds it. `machines`: the only kinds of
    machine that it is for, by the system's names; on others nobody need be told that it is passed over (empty: on all), nor where
    `is_here` shows no sign of its device. `asked`: of GPUs, the entry for one that was asked for, by its number or as such.
    `is_exact`: it has the reference's bits. `is_automatic`: it may be chosen where nobody asks for it by name."""

    name: str
    probe: Callable[[], str]
    make: Callable[[int, tuple[str, ...] | None, str], Platform]
    machines: tuple[str, ...] = ()
    is_here: Callable[[], bool] = lambda: True
    asked: Callable[[int | None], Entry] | None = None
    is_exact: bool = True
    is_automatic: bool = True


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


def _gpu(kind: str, index: int | None = None, *, is_asked: bool = False) -> Entry:
    """The GPUs of a kind (cuda, rocm): the best of them, or the one of this number."""

    def choice() -> Choice:
        from octavo.platforms.gpu.choice import choose
        from octavo.platforms.gpu.found import find

        return choose(find(kind, is_thorough=is_asked), index)

    def make(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> Platform:
        from octavo.platforms.gpu.opening import open_platform

        return open_platform(choice(), isa, numerics)

    asked = None if is_asked else lambda number: _gpu(kind, number, is_asked=True)
    return Entry(kind, lambda: choice().refusal, make, is_here=lambda: has_signs(kind), asked=asked)


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


def _probe_torch() -> str:
    if find_spec("torch") is None:
        return "torch is not installed: install the build for this machine (https://pytorch.org/get-started)"
    try:
        import_module("octavo.platforms.gpu.torch_base.runtime")  # imports torch, which waits for this platform's turn
    except Exception as error:  # a build for another system fails in its own ways
        return f"torch cannot be imported: {error}"
    return ""


def _make_torch(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> Platform:
    from octavo.platforms.gpu.torch_base.platform import TorchPlatform, best_device

    return TorchPlatform(best_device(), num_threads=num_threads)


def _make_reference(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> Platform:
    from octavo.platforms.reference.platform import ReferencePlatform

    return ReferencePlatform()


X86_MACHINES, ARM_MACHINES = ("x86_64", "AMD64"), ("aarch64", "arm64")
AUTO, CPU = "auto", "cpu"  # words for the first that runs, of all and of those on the processor
#: what people say for a kind of device, which letters would take for another
MEANT = {"gpu": AUTO, "nvidia": "cuda", "amd": "rocm", "hip": "rocm"}
PLATFORMS: tuple[Entry, ...] = (
    _gpu("cuda"),
    _gpu("rocm"),
    Entry("x86", _probe_native(*X86_MACHINES), _make_x86, X86_MACHINES),
    Entry("arm", _probe_native(*ARM_MACHINES), _make_arm, ARM_MACHINES),
    Entry("portable", _probe_portable, _make_portable),
    Entry("torch", _probe_torch, _make_torch, is_exact=False, is_automatic=False),
    Entry("reference", lambda: "", _make_reference),
)


def _entries(word: str) -> list[Entry]:
    """What a word stands for: auto, cpu, a platform's name, or a GPU by its number (cuda:1). ConfigError for others."""
    if word in (AUTO, CPU):
        machine = machine_info.machine()
        usable = [e for e in PLATFORMS if e.is_automatic and (not e.machines or machine in e.machines)]
        return [entry for entry in usable if entry.is_here() and (word == AUTO or entry.asked is None)]
    name, colon, number = word.partition(":")
    entry = next((entry for entry in PLATFORMS if entry.name == name), None)
    known = [AUTO, CPU, *(entry.name for entry in PLATFORMS)]
    if entry is None:
        from difflib import get_close_matches  # only for this message

        close = [MEANT[name]] if name in MEANT else get_close_matches(name, known, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"unknown device or platform {word!r}; known are {', '.join(known)}{hint}")
    if colon and not (entry.asked is not None and number.isascii() and number.isdigit()):
        numbered = ", ".join(f"{entry.name}:0" for entry in PLATFORMS if entry.asked is not None)
        raise ConfigError(f"unknown device {word!r}; only GPUs have numbers: {numbered}")
    return [entry if entry.asked is None else entry.asked(int(number) if colon else None)]


def choose_platform(
    name: str | None, num_threads: int, isa: tuple[str, ...] | None = None, numerics: str = ""
) -> Chosen:
    """The platform that `name` stands for, or the first of the list that runs here (None, auto; cpu: without GPUs). Unknown names
    are errors, and so are refusals of what was asked for by name: nothing else takes its place. `numerics`: "exact" keeps every
    level to the same bits, "fast" also lets levels run that do not."""
    word = (name or AUTO).lower()
    is_named = word not in (AUTO, CPU)
    refused: list[tuple[str, str]] = []
    for entry in _entries(word):
        reason = entry.probe()
        if not reason:
            try:
                return Chosen(entry.make(num_threads, isa, numerics), tuple(refused))
            except PlatformError as error:
                if is_named or entry.asked is None:
                    raise
                reason = str(error)  # a GPU that fails when it is opened leaves the processor to run
        refused.append((entry.name, reason))
    reasons = "; ".join(f"{n}: {why}" for n, why in refused)
    if not is_named:
        raise PlatformError(f"no platform runs here: {reasons}")
    others = [e.name for e in PLATFORMS if e.asked is not None and e.name not in word and e.is_here()]
    hint = f" (there is a sign of {' and '.join(others)})" if others else ""
    raise PlatformError(
        f"{word} was asked for and cannot be used: {reasons}; `octavo doctor` shows what was found, and --device auto takes "
        f"what runs{hint}"
    )
