"""Which GPU of a kind is used, or the one line that says why none can be: a pure function of what was found.

A refusal says what was found and what to do. What is passed over on the way to a device is told too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo.platforms.gpu.arch import fitting, is_older
from octavo.platforms.gpu.device import DeviceFacts


@dataclass(frozen=True)
class Vendor:
    """A kind's words."""

    kind: str
    vendor: str  # as people say it
    package: str  # of the binding, on PyPI
    driver: str  # what has to be installed on the machine
    container: str  # what gives devices to a container
    variables: tuple[str, ...]  # of the environment, that hide devices
    release: str  # what versions are of


VENDORS = {
    "cuda": Vendor(
        "cuda", "NVIDIA", "cuda-bindings", "NVIDIA's driver (https://www.nvidia.com/drivers)",
        "start it with `--gpus all` (NVIDIA Container Toolkit)", ("CUDA_VISIBLE_DEVICES",), "CUDA",
    ),
    "rocm": Vendor(
        "rocm", "AMD", "hip-python", "the amdgpu driver and ROCm (https://rocm.docs.amd.com/projects/install-on-linux)",
        "start it with `--device /dev/kfd --device /dev/dri --group-add video --group-add render`",
        ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"), "HIP",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Torch:
    """An installed PyTorch. `kind`: what its build computes on besides the CPU: cuda, rocm, or '' for nothing; `problem`: why it
    cannot use a GPU here ('' = it can, or nobody tried)."""

    version: str
    kind: str
    problem: str = ""


@dataclass(frozen=True)
class Found:
    """What a machine has of one kind, in the order in which it is needed. '' and () mean nothing against it."""

    kind: str
    has_driver: bool = False  # the kernel's driver is loaded
    on_bus: tuple[str, ...] = ()  # such GPUs on the PCI bus; () too where nobody looked
    is_container: bool = False
    closed_files: tuple[str, ...] = ()  # device files that this user may not open
    binding: str = ""  # version of the binding, '' if it is not installed
    binding_problem: str = ""  # why it cannot be imported
    driver_problem: str = ""  # the loader's or the driver's words
    binding_release: tuple[int, int] = (0, 0)  # what the binding was made for
    driver_release: tuple[int, int] = (0, 0)  # what the driver is or knows
    devices: tuple[DeviceFacts, ...] = ()
    num_present: int = 0  # devices of the kernel's driver, visible to this process or not
    hiding: Mapping[str, str] = field(default_factory=dict)  # variables that are set
    targets: tuple[str, ...] | None = None  # archs of the installed code objects; None: none are installed
    code_problem: str = ""  # why they are not of this octavo
    torch: Torch | None = None

    @property
    def is_here(self) -> bool:
        """Whether there is a sign of such a GPU, so that passing over it deserves a word."""
        return self.has_driver or bool(self.on_bus) or bool(self.devices)


@dataclass(frozen=True)
class Choice:
    """A device with the code object's arch, or a refusal. `notes`: what was passed over and why."""

    device: DeviceFacts | None = None
    target: str = ""
    refusal: str = ""
    notes: tuple[str, ...] = ()


def shown(device: DeviceFacts) -> str:
    """cuda:0 NVIDIA H200 (sm_90, 139.8 GiB)."""
    return f"{device.kind}:{device.index} {device.name} ({device.arch}, {device.memory_bytes / (1 << 30):.1f} GiB)"


def choose(found: Found, index: int | None = None) -> Choice:
    """The device to use. `index`: the one that was asked for; None: the first whose chip has code objects, a GPU with memory of
    its own before a part of the processor."""
    problem = machine_problem(found) or _index_problem(found, index)
    if problem:
        return Choice(refusal=problem)
    asked = [device for device in found.devices if index is None or device.index == index]
    if found.targets is None:
        return Choice(refusal=_without_code(found, asked))
    if found.code_problem:
        return Choice(refusal=found.code_problem)
    fits = {device.index: fitting(device.arch, found.targets) for device in asked}
    runs = sorted((d for d in asked if fits[d.index]), key=lambda device: (device.is_integrated, device.index))
    if not runs:
        return Choice(refusal=_without_fit(found, asked))
    taken = runs[0]
    notes = [f"{shown(d)} has no code object" for d in asked if not fits[d.index]]
    for device in runs[1:]:
        why = "is a part of the processor" if device.is_integrated and not taken.is_integrated else "would do too"
        notes.append(f"{shown(device)} {why}: --device {device.kind}:{device.index}")
    return Choice(taken, fits[taken.index], notes=(*notes, *_torch_note(found)))


def machine_problem(found: Found) -> str:
    """Why no device of the kind can be used, whatever its chip; '' where some can."""
    vendor = VENDORS[found.kind]
    if not found.is_here and (not found.binding or found.driver_problem):
        words = f" ({found.driver_problem})" if found.driver_problem else ""
        return f"no {vendor.vendor} GPU was found on this machine{words}"
    if not found.has_driver and found.on_bus:
        seen = f"there is {' and '.join(found.on_bus)} on the PCI bus"
        if found.is_container:
            return f"{seen}, but this container was given no device; {vendor.container}"
        return f"{seen}, but its driver is not loaded; install {vendor.driver}"
    if not found.binding:
        return f"{vendor.package} is not installed; pip install 'octavo[{found.kind}]'"
    if found.binding_problem:
        return f"{vendor.package} {found.binding} cannot be imported: {found.binding_problem}; install it again"
    if found.closed_files:
        return (
            f"{' and '.join(found.closed_files)} cannot be opened by this user; "
            "`sudo usermod -aG render,video $USER` and log in again (in a container: --group-add)"
        )
    if found.driver_problem:
        if found.is_container and not found.num_present:
            return f"{found.driver_problem}; was this container given a device? If not, {vendor.container}"
        return found.driver_problem
    return _release_problem(found, vendor) or ("" if found.devices else _no_device(found, vendor))


def _release_problem(found: Found, vendor: Vendor) -> str:
    """HIP's majors differ in their structures both ways; CUDA's driver runs what is older than itself."""
    ours, theirs = found.binding_release[0], found.driver_release[0]
    if not ours or not theirs or ours == theirs or (found.kind == "cuda" and ours < theirs):
        return ""
    made = ".".join(map(str, found.binding_release))
    has = ".".join(map(str, found.driver_release))
    return (
        f"{vendor.package} {found.binding} was made for {vendor.release} {made}, the driver has {vendor.release} {has}; "
        f"pip install '{vendor.package}=={theirs}.*', or install the driver of that release"
    )


def _hidden(found: Found) -> str:
    """The variables that hide devices, if some are hidden."""
    if not found.hiding or (found.num_present and found.num_present <= len(found.devices)):
        return ""
    return ", ".join(f"{name}={value!r}" for name, value in found.hiding.items())


def _no_device(found: Found, vendor: Vendor) -> str:
    hidden = _hidden(found)
    if hidden:
        what = {0: "all devices", 1: "the only device"}.get(found.num_present, f"all {found.num_present} devices")
        return f"{hidden} hides {what}; unset it"
    if found.is_container:
        return f"this container was given no {vendor.vendor} device; {vendor.container}"
    if found.num_present:
        return f"the kernel's driver has {found.num_present} of {vendor.vendor}'s devices, its library shows none; see dmesg"
    return f"no {vendor.vendor} GPU was found on this machine"


def _index_problem(found: Found, index: int | None) -> str:
    if index is None or any(device.index == index for device in found.devices):
        return ""
    hidden = _hidden(found)
    return f"there is no device {index}; there are " + ", ".join(map(shown, found.devices)) + (
        f" ({hidden} may hide others)" if hidden else ""
    )  # fmt: skip


def _without_code(found: Found, asked: list[DeviceFacts]) -> str:
    return (
        f"{', '.join(map(shown, asked))}: its kernels are not installed; pip install octavo-{found.kind}"
        + _torch_hint(found)
    )


def _without_fit(found: Found, asked: list[DeviceFacts]) -> str:
    targets = found.targets or ()
    has = f"octavo-{found.kind} has {', '.join(targets) or 'none'}"
    if all(is_older(device.arch, targets) for device in asked):
        return f"{', '.join(map(shown, asked))} is older than what Octavo's kernels are built for ({has})" + _instead(
            found
        )
    return f"{', '.join(map(shown, asked))} has no code object ({has})" + _instead(found)


def _torch_hint(found: Found) -> str:
    """What else could use the GPU."""
    torch = found.torch
    if torch is None or torch.kind != found.kind:
        return ""
    if torch.problem:
        return f"; PyTorch {torch.version} is here, but {torch.problem}"
    return f"; PyTorch {torch.version} is here: --device torch uses it, slower"


def _instead(found: Found) -> str:
    """What runs where no kernel of ours does."""
    hint = _torch_hint(found)
    if hint and found.torch is not None and not found.torch.problem:
        return hint
    vendor = VENDORS[found.kind].vendor
    other = "" if hint else f", --device torch with a PyTorch that is built for {vendor}'s GPUs"
    return f"{hint}; --device cpu runs without a GPU{other}"


def _torch_note(found: Found) -> tuple[str, ...]:
    """A PyTorch of the other vendor is a common mistake."""
    torch = found.torch
    if torch is None or torch.kind in ("", found.kind):
        return ()
    other, ours = VENDORS[torch.kind].vendor, VENDORS[found.kind].vendor
    return (f"PyTorch {torch.version} is built for {other}'s GPUs and cannot use {ours}'s",)
