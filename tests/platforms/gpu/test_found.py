"""What is seen of a machine, whose files are made here and whose driver is a stand-in. Without a sign nothing is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.platforms.gpu.chips import CHIPS, TARGETS

from octavo.platforms.gpu import found as looking
from octavo.platforms.gpu.calls import DriverError
from octavo.platforms.gpu.choice import Torch, choose
from octavo.platforms.gpu.signs import has_signs

RUNTIME = "octavo.platforms.gpu.torch_base.runtime"
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(looking, "_targets", TARGETS.get)
    monkeypatch.setattr(looking, "installed_torch", lambda: None)


def touch(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def pci(root: Path, address: str, vendor: str, device: str, kind: str) -> None:
    folder = f"sys/bus/pci/devices/{address}"
    for name, text in (("vendor", vendor), ("device", device), ("class", kind)):
        touch(root, f"{folder}/{name}", text=text + "\n")


def driver(kind: str, *chips: str, **changes: Any) -> Any:
    """What stands in for the module of a kind's driver."""
    release = {"cuda": (13, 0), "rocm": (7, 15)}[kind]
    parts: dict[str, Any] = {
        "PACKAGE": "octavo-no-such-package", "load_api": lambda: object(), "binding_release": lambda api: release,
        "driver_release": lambda api: release,
        "list_devices": lambda api: [CHIPS[name].facts(index) for index, name in enumerate(chips)],
    }  # fmt: skip
    return SimpleNamespace(**parts | changes)


@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_without_a_sign_nobody_looks_further(kind: str, tmp_path: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("it was asked")

    pci(tmp_path, "0000:01:00.0", "0x10de", "0x2684", "0x030000")
    found = looking.find(kind, root=tmp_path, driver=driver(kind, load_api=never))
    assert not found.is_here and choose(found).refusal.startswith("no ")


def test_a_machine_with_cards_of_both_is_seen_as_it_is(tmp_path: Path) -> None:
    touch(tmp_path, "dev/nvidiactl", "dev/nvidia0", "dev/nvidia1", "dev/nvidia-uvm", "dev/kfd", "dev/dri/renderD128")
    touch(tmp_path, "sys/class/kfd/kfd/topology/nodes/0/gpu_id", text="0\n")
    touch(tmp_path, "sys/class/kfd/kfd/topology/nodes/1/gpu_id", text="4660\n")
    pci(tmp_path, "0000:01:00.0", "0x10de", "0x2684", "0x030000")
    pci(tmp_path, "0000:03:00.0", "0x1002", "0x744c", "0x038000")
    pci(tmp_path, "0000:83:00.0", "0x1002", "0x74a1", "0x120000")
    pci(tmp_path, "0000:01:00.1", "0x10de", "0x22ba", "0x040300")  # its sound
    nvidia = looking.find("cuda", root=tmp_path, driver=driver("cuda", "RTX 4090", "RTX 4090"))
    assert nvidia.on_bus == ("NVIDIA device 2684 at 0000:01:00.0",)
    assert (nvidia.has_driver, nvidia.num_present, len(nvidia.devices), nvidia.is_container) == (True, 2, 2, False)
    amd = looking.find("rocm", root=tmp_path, driver=driver("rocm", "W7900"))
    assert amd.on_bus == ("AMD device 744c at 0000:03:00.0", "AMD device 74a1 at 0000:83:00.0")
    assert (amd.has_driver, amd.num_present, amd.devices) == (True, 1, (CHIPS["W7900"].facts(),))
    assert choose(amd).target == "gfx11-generic" and choose(nvidia).target == "sm_86"


def test_a_card_without_a_driver_is_told_if_it_was_asked_for(tmp_path: Path) -> None:
    pci(tmp_path, "0000:01:00.0", "0x10de", "0x2684", "0x030000")
    found = looking.find("cuda", is_thorough=True, root=tmp_path, driver=driver("cuda"))
    assert "its driver is not loaded" in choose(found).refusal
    touch(tmp_path, ".dockerenv")
    found = looking.find("cuda", is_thorough=True, root=tmp_path, driver=driver("cuda"))
    assert "this container was given no device; start it with `--gpus all`" in choose(found).refusal


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_device_files_of_others_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "dev/kfd", "dev/dri/renderD128", "dev/dri/card0")
    (tmp_path / "dev/kfd").chmod(0)
    found = looking.find("rocm", root=tmp_path, driver=driver("rocm", "W7900"))
    assert found.closed_files == ("/dev/kfd",) and found.devices == ()
    assert "usermod -aG render" in choose(found).refusal


def test_closed_device_files_are_told_before_the_driver_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(api: Any) -> Any:
        raise AssertionError("it was asked")

    touch(tmp_path, "dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129")
    monkeypatch.setattr(looking, "_opens", lambda path: path.name == "renderD129")
    found = looking.find("rocm", root=tmp_path, driver=driver("rocm", driver_release=never))
    assert found.closed_files == ("/dev/kfd",)  # one render node is enough
    monkeypatch.setattr(looking, "_opens", lambda path: path.name == "kfd")
    found = looking.find("rocm", root=tmp_path, driver=driver("rocm", driver_release=never))
    assert found.closed_files == ("/dev/dri/renderD128", "/dev/dri/renderD129")


def test_variables_that_hide_devices_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "dev/nvidiactl", "dev/nvidia0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")  # AMD's alone
    found = looking.find("cuda", root=tmp_path, driver=driver("cuda"))
    assert found.hiding == {"CUDA_VISIBLE_DEVICES": ""}
    assert choose(found).refusal == "CUDA_VISIBLE_DEVICES='' hides the only device; unset it"


def test_the_drivers_words_are_kept(tmp_path: Path) -> None:
    def fails(api: Any) -> Any:
        raise DriverError(
            "CUDA: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); restart the machine", "cuInit", 803
        )

    touch(tmp_path, "dev/nvidiactl", "dev/nvidia0")
    found = looking.find("cuda", root=tmp_path, driver=driver("cuda", list_devices=fails))
    assert choose(found).refusal.endswith("(803); restart the machine")


@pytest.mark.parametrize(
    ("error", "text"),
    [(ModuleNotFoundError("No module named 'cuda.bindings'", name="cuda.bindings"), "cuda-bindings is not installed"),
     (ModuleNotFoundError("No module named 'numpy.odd'", name="numpy.odd"), "cannot be imported: No module named 'numpy.odd'"),
     (ImportError("undefined symbol:\n Py_X"), "cannot be imported: undefined symbol: Py_X"),
     (AttributeError("no such thing"), "cannot be imported: no such thing")],
)  # fmt: skip
def test_a_binding_that_cannot_be_imported_says_why(error: Exception, text: str, tmp_path: Path) -> None:
    def fails() -> Any:
        raise error

    touch(tmp_path, "dev/nvidiactl", "dev/nvidia0")
    assert text in choose(looking.find("cuda", root=tmp_path, driver=driver("cuda", load_api=fails))).refusal


@pytest.mark.parametrize(
    ("text", "expected"),
    [("from typing import Optional\n\n__all__ = ['__version__']\n__version__ = '2.8.0+cu128'\ndebug = False\n"
      "cuda: Optional[str] = '12.8'\ngit_version = 'a1'\nhip: Optional[str] = None\n", Torch("2.8.0+cu128", "cuda")),
     ("__version__ = '2.9.1+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.43484'\n",
      Torch("2.9.1+rocm6.4", "rocm")),
     ("__version__ = '2.9.1+cpu'\ncuda = None\nhip = None\n", Torch("2.9.1+cpu", "")),
     ("", None)],
)  # fmt: skip
def test_the_build_of_torch_is_read_without_importing_it(text: str, expected: Torch | None) -> None:
    assert looking.torch_of(text) == expected


def test_signs_are_files_of_the_kernels_drivers(tmp_path: Path) -> None:
    assert not has_signs("cuda", str(tmp_path)) and not has_signs("rocm", str(tmp_path))
    touch(tmp_path, "usr/lib/wsl/lib/libcuda.so.1", "dev/kfd")
    assert has_signs("cuda", str(tmp_path)) and has_signs("rocm", str(tmp_path))


def test_looking_for_signs_imports_nothing() -> None:
    code = (
        "import octavo.platforms, os, sys\nbefore = set(sys.modules)\n"
        "from octavo.platforms.gpu.signs import has_signs\nhas_signs('cuda'), has_signs('rocm')\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": "src"}, cwd=Path(__file__).parents[3],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['octavo.platforms.gpu', 'octavo.platforms.gpu.signs']"


@pytest.mark.parametrize(
    ("chips", "is_thorough", "tried"),
    [
        (("RX 6800",), True, True),
        (("RX 6800",), False, False),
        (("RX 6800", "RX 9070"), True, False),
        ((), True, False),
    ],
)
def test_torch_is_tried_where_it_would_do_instead(
    chips: tuple[str, ...], is_thorough: bool, tried: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "dev/kfd")
    monkeypatch.setattr(looking, "installed_torch", lambda: Torch("2.9.1", "rocm"))
    monkeypatch.setattr(looking, "torch_problem", lambda: "it reaches no GPU")
    found = looking.find("rocm", root=tmp_path, driver=driver("rocm", *chips), is_thorough=is_thorough)
    assert found.torch == Torch("2.9.1", "rocm", "it reaches no GPU" if tried else "")


def test_a_torch_for_other_gpus_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "dev/kfd")
    monkeypatch.setattr(looking, "installed_torch", lambda: Torch("2.9.1", "cuda"))
    monkeypatch.setattr(looking, "torch_problem", lambda: pytest.fail("it was imported"))
    assert looking.find("rocm", root=tmp_path, driver=driver("rocm", "RX 6800"), is_thorough=True).torch is not None


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (SimpleNamespace(torch=SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))), ""),
        (SimpleNamespace(torch=SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))), "it reaches no GPU"),
        (None, f"it cannot be imported: import of {RUNTIME} halted; None in sys.modules"),
    ],
)
def test_what_torch_lacks_is_said(module: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, RUNTIME, module)
    assert looking.torch_problem() == problem
