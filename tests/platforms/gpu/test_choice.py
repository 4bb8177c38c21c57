"""The decision table: a machine as it was found, and the device that is used or the line that says why none is."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from tests.platforms.gpu.chips import CHIPS, GIB, TARGETS
from tests.platforms.gpu.fakes import bindings, build

from octavo.platforms.gpu.choice import Choice, Found, Torch, choose, shown

AMD_TORCH, NVIDIA_TORCH = Torch("2.9.1+rocm6.4", "rocm"), Torch("2.9.1+cu128", "cuda")


def machine(*names: str, **changes: Any) -> Found:
    """One that has these chips and all that they need."""
    chips = [CHIPS[name] for name in names]
    kind = chips[0].kind if chips else changes.pop("kind")
    releases = {"cuda": ((13, 0), (13, 1)), "rocm": ((7, 2), (7, 15))}[kind]
    found = Found(
        kind, has_driver=True, binding="9.9", binding_release=releases[0], driver_release=releases[1],
        devices=tuple(chip.facts(index) for index, chip in enumerate(chips)), num_present=len(chips), targets=TARGETS[kind],
    )  # fmt: skip
    return replace(found, **changes)


@pytest.mark.parametrize("name", CHIPS)
def test_each_chip_by_its_drivers_answers(name: str) -> None:
    chip = CHIPS[name]
    library = ctypes.CDLL(str(build.libraries() / build.SONAMES[chip.kind]))
    fake = build.FakeDriver(library)
    fake.devices(1)
    fake.device(
        0, chip.name, chip.arch, chip.memory_gib * GIB, wave=chip.wave, units=chip.units, shared=chip.shared,
        is_integrated=chip.is_integrated,
    )  # fmt: skip
    driver: Any = import_module(f"octavo.platforms.{chip.kind}.driver")
    devices = driver.list_devices(bindings.binding(chip.kind, library))
    expected = chip.facts()
    assert devices == [replace(expected, driver=devices[0].driver, library=devices[0].library)]
    choice = choose(machine(name, devices=tuple(devices)))
    if chip.target:
        assert (choice.device, choice.target, choice.refusal) == (devices[0], chip.target, "")
    else:
        assert choice.device is None and chip.name in choice.refusal and expected.arch in choice.refusal


TEXTS = [
    ("too old", machine("GTX 1080"),
     "cuda:0 NVIDIA GeForce GTX 1080 (sm_61, 8.0 GiB) is older than what Octavo's kernels are built for "
     "(octavo-cuda has sm_100, sm_80, sm_86, sm_90a); --device cpu runs without a GPU, --device torch with a PyTorch that is "
     "built for NVIDIA's GPUs"),
    ("no code object", machine("RX 6800"),
     "rocm:0 AMD Radeon RX 6800 (gfx1030, 16.0 GiB) has no code object "
     "(octavo-rocm has gfx11-generic, gfx12-generic, gfx9-4-generic, gfx90a, gfx950); --device cpu runs without a GPU, "
     "--device torch with a PyTorch that is built for AMD's GPUs"),
    ("no code object, torch is there", machine("RX 6800", torch=AMD_TORCH, targets=("gfx942",)),
     "rocm:0 AMD Radeon RX 6800 (gfx1030, 16.0 GiB) has no code object (octavo-rocm has gfx942); "
     "PyTorch 2.9.1+rocm6.4 is here: --device torch uses it, slower"),
    ("no code object, torch is there and does not work",
     machine("RX 6800", torch=replace(AMD_TORCH, problem="it reaches no GPU"), targets=("gfx942",)),
     "rocm:0 AMD Radeon RX 6800 (gfx1030, 16.0 GiB) has no code object (octavo-rocm has gfx942); "
     "PyTorch 2.9.1+rocm6.4 is here, but it reaches no GPU; --device cpu runs without a GPU"),
    ("no code object, the other vendor's torch is there", machine("RX 6800", torch=NVIDIA_TORCH, targets=("gfx942",)),
     "rocm:0 AMD Radeon RX 6800 (gfx1030, 16.0 GiB) has no code object (octavo-rocm has gfx942); --device cpu runs without a "
     "GPU, --device torch with a PyTorch that is built for AMD's GPUs"),
    ("kernels not installed", machine("H200", targets=None),
     "cuda:0 NVIDIA H200 (sm_90, 140.0 GiB): its kernels are not installed; pip install octavo-cuda"),
    ("no such GPU", machine(kind="cuda", has_driver=False, binding=""), "no NVIDIA GPU was found on this machine"),
    ("no such GPU, binding there", machine(kind="rocm"), "no AMD GPU was found on this machine"),
    ("binding not installed", machine(kind="rocm", binding=""), "hip-python is not installed; pip install 'octavo[rocm]'"),
    ("binding not installed", machine(kind="cuda", binding=""), "cuda-bindings is not installed; pip install 'octavo[cuda]'"),
    ("binding broken", machine(kind="cuda", binding_problem="undefined symbol: Py_X"),
     "cuda-bindings 9.9 cannot be imported: undefined symbol: Py_X; install it again"),
    ("driver not loaded", machine(kind="cuda", has_driver=False, on_bus=("NVIDIA device 2684 at 0000:01:00.0",)),
     "there is NVIDIA device 2684 at 0000:01:00.0 on the PCI bus, but its driver is not loaded; install NVIDIA's driver "
     "(https://www.nvidia.com/drivers)"),
    ("container without devices",
     machine(kind="rocm", has_driver=False, on_bus=("AMD device 744c at 0000:03:00.0",), is_container=True),
     "there is AMD device 744c at 0000:03:00.0 on the PCI bus, but this container was given no device; start it with "
     "`--device /dev/kfd --device /dev/dri --group-add video --group-add render`"),
    ("container without the library", machine(kind="cuda", is_container=True, driver_problem="CUDA: cuInit failed: no libcuda"),
     "CUDA: cuInit failed: no libcuda; was this container given a device? If not, start it with `--gpus all` (NVIDIA Container "
     "Toolkit)"),
    ("container without a render node", machine(kind="rocm", is_container=True, num_present=8),
     "this container was given no AMD device; start it with `--device /dev/kfd --device /dev/dri --group-add video "
     "--group-add render`"),
    ("no permission", machine(kind="rocm", closed_files=("/dev/kfd", "/dev/dri/renderD128")),
     "/dev/kfd and /dev/dri/renderD128 cannot be opened by this user; `sudo usermod -aG render,video $USER` and log in again "
     "(in a container: --group-add)"),
    ("no library of the driver", machine(kind="rocm", has_driver=False, driver_problem="HIP: cannot open libamdhip64.so"),
     "no AMD GPU was found on this machine (HIP: cannot open libamdhip64.so)"),
    ("driver fails", machine(kind="cuda", driver_problem="CUDA: cuInit failed: UNKNOWN (999)"),
     "CUDA: cuInit failed: UNKNOWN (999)"),
    ("driver older than the binding", machine("H200", driver_release=(12, 4)),
     "cuda-bindings 9.9 was made for CUDA 13.0, the driver has CUDA 12.4; pip install 'cuda-bindings==12.*', or install the "
     "driver of that release"),
    ("ROCm releases differ", machine("MI300X", binding_release=(6, 4)),
     "hip-python 9.9 was made for HIP 6.4, the driver has HIP 7.15; pip install 'hip-python==7.*', or install the driver of "
     "that release"),
    ("ROCm releases differ the other way", machine("MI300X", driver_release=(6, 2)),
     "hip-python 9.9 was made for HIP 7.2, the driver has HIP 6.2; pip install 'hip-python==6.*', or install the driver of "
     "that release"),
    ("code objects of another version", machine("MI300X", code_problem="octavo-rocm 9.9 is not of this octavo, 0.1.0"),
     "octavo-rocm 9.9 is not of this octavo, 0.1.0"),
    ("all hidden", machine(kind="cuda", hiding={"CUDA_VISIBLE_DEVICES": ""}, num_present=2),
     "CUDA_VISIBLE_DEVICES='' hides all 2 devices; unset it"),
    ("all hidden, uncounted", machine(kind="rocm", hiding={"HIP_VISIBLE_DEVICES": "7"}, num_present=0),
     "HIP_VISIBLE_DEVICES='7' hides all devices; unset it"),
    ("the kernel has what the driver does not show", machine(kind="rocm", num_present=1),
     "the kernel's driver has 1 of AMD's devices, its library shows none; see dmesg"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "text"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_a_machine_that_cannot_gets_one_line(found: Found, text: str) -> None:
    assert choose(found) == Choice(refusal=text)


def test_a_newer_cuda_driver_runs_an_older_binding() -> None:
    assert choose(machine("H200", binding_release=(12, 9))).device is not None


def test_a_device_number_that_is_not_there_lists_those_that_are() -> None:
    found = machine("H200", "RTX 4090")
    assert choose(found, 1).device == found.devices[1]
    text = choose(found, 2).refusal
    assert text == (
        "there is no device 2; there are cuda:0 NVIDIA H200 (sm_90, 140.0 GiB), cuda:1 NVIDIA GeForce RTX 4090 (sm_89, 24.0 GiB)"
    )
    hidden = replace(found, hiding={"CUDA_VISIBLE_DEVICES": "0,1"}, num_present=8)
    assert choose(hidden, 2).refusal == text + " (CUDA_VISIBLE_DEVICES='0,1' may hide others)"
    assert choose(replace(hidden, num_present=2), 2).refusal == text


def test_a_device_that_was_asked_for_is_not_exchanged() -> None:
    found = machine("H200", "GTX 1080")
    choice = choose(found, 1)
    assert choice.device is None and "GTX 1080" in choice.refusal and "H200" not in choice.refusal


def test_a_gpu_of_its_own_goes_before_the_processors() -> None:
    found = machine("Strix Halo", "RX 9070")
    choice = choose(found)
    assert choice.device == found.devices[1] and choice.target == "gfx12-generic"
    assert choice.notes == ("rocm:0 AMD Radeon 8060S (gfx1151, 96.0 GiB) is a part of the processor: --device rocm:0",)
    assert choose(found, 0).device == found.devices[0]


def test_a_processors_gpu_goes_before_one_without_code() -> None:
    found = machine("RX 6800", "Strix Halo")
    choice = choose(found)
    assert choice.device == found.devices[1]
    assert choice.notes == ("rocm:0 AMD Radeon RX 6800 (gfx1030, 16.0 GiB) has no code object",)


def test_of_equals_the_first_is_taken_and_the_others_are_told() -> None:
    found = machine("H200", "H200", "H200")
    choice = choose(found)
    assert choice.device == found.devices[0]
    assert [note.rsplit(": ", 1)[1] for note in choice.notes] == ["--device cuda:1", "--device cuda:2"]


def test_a_torch_for_the_other_vendor_is_told() -> None:
    (note,) = choose(machine("MI300X", torch=NVIDIA_TORCH)).notes
    assert note == "PyTorch 2.9.1+cu128 is built for NVIDIA's GPUs and cannot use AMD's"
    assert choose(machine("MI300X", torch=AMD_TORCH)).notes == ()
    assert choose(machine("MI300X", torch=Torch("2.9.1+cpu", ""))).notes == ()


def test_a_device_is_shown_by_what_it_is_asked_for_with() -> None:
    assert shown(CHIPS["MI355X"].facts(3)) == "rocm:3 AMD Instinct MI355X (gfx950, 288.0 GiB)"
