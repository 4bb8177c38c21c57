"""The choice of a platform: what is for another kind of machine is passed over without a word, unless it was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.engine.errors import ConfigError, PlatformError
from octavo.platforms import registry
from octavo.platforms.registry import choose_platform


@pytest.mark.parametrize(("machine", "passed_over"), [("riscv64", ()), ("aarch64", ("arm",)), ("x86_64", ("x86",))])
def test_only_platforms_of_this_machine_are_refusals(
    machine: str, passed_over: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [
        replace(e, probe=lambda: "broken") if e.machines else e for e in registry.PLATFORMS if e.name != "portable"
    ]
    monkeypatch.setattr(registry, "PLATFORMS", tuple(broken))
    monkeypatch.setattr(registry.machine_info, "machine", lambda: machine)
    chosen = choose_platform(None, 1)
    assert chosen.platform.name == "reference"
    assert chosen.refused == tuple((name, "broken") for name in passed_over)


def test_a_platform_for_another_machine_that_was_asked_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.machine_info, "machine", lambda: "riscv64")
    for name in ("x86", "arm"):
        with pytest.raises(PlatformError, match=f"{name}: this machine is riscv64"):
            choose_platform(name, 1)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("gpu", r"unknown device or platform 'gpu'; .*; did you mean auto\?"),
        ("amd", r"unknown device or platform 'amd'; .*; did you mean rocm\?"),
        ("nvidia:1", r"unknown device or platform 'nvidia:1'; .*; did you mean cuda\?"),
        ("cdua", r"unknown device or platform 'cdua'; known are auto, cpu, cuda, rocm, .*; did you mean cuda\?"),
        ("cuda:", "unknown device 'cuda:'; only GPUs have numbers: cuda:0, rocm:0"),
        ("cuda:-1", "unknown device 'cuda:-1'"),
        ("cuda:0:1", "unknown device 'cuda:0:1'"),
        ("reference:0", "unknown device 'reference:0'"),
        ("cpu:0", "unknown device or platform 'cpu:0'"),
    ],
)
def test_words_that_mean_nothing_are_errors(word: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        choose_platform(word, 1)


@pytest.mark.parametrize("word", ["auto", "cpu", None])
def test_a_machine_without_a_gpu_is_not_looked_at_twice(word: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("GPUs were looked for")

    monkeypatch.setattr(registry, "has_signs", lambda kind: False)
    monkeypatch.setattr("octavo.platforms.gpu.found.find", never)
    chosen = choose_platform(word, 1)
    assert chosen.platform.name not in ("cuda", "rocm")
    assert all(name not in ("cuda", "rocm") for name, _ in chosen.refused)


def test_gpus_cost_a_start_without_them_no_import() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom octavo.platforms import registry\nregistry.has_signs = lambda kind: False\n"
        "registry.choose_platform('auto', 1)\n"
        "parts = ('octavo.platforms.gpu', 'octavo.platforms.cuda', 'octavo.platforms.rocm', 'cuda', 'hip', 'rocm', 'torch')\n"
        "mine = lambda name: any(name == part or name.startswith(part + '.') for part in parts)\n"
        "print(sorted(filter(mine, set(sys.modules) - before)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": "src"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['octavo.platforms.gpu', 'octavo.platforms.gpu.signs']"
