"""The x86 platform starts no more threads than can run."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from octavo.engine.errors import ConfigError, PlatformError
from octavo.platforms.cpu.module import load
from octavo.platforms.limits import read_limits
from octavo.platforms.x86.platform import X86Platform

try:
    load()
except PlatformError as error:
    pytest.skip(str(error), allow_module_level=True)


def test_threads_that_could_never_run_are_not_started(caplog: pytest.LogCaptureFixture) -> None:
    most = read_limits().most_threads
    with caplog.at_level(logging.WARNING, "octavo.platforms"):
        few = X86Platform(1)
        assert (few.num_threads, few.team.num_threads, caplog.text) == (1, 1, "")
        many = X86Platform(most + 6)
    assert many.num_threads == many.team.num_threads == most
    assert f"{most + 6} threads asked for, {most} can run at a time here" in caplog.text


def test_a_level_that_was_asked_for_in_vain_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "octavo.platforms"):
        X86Platform(1, ("scalar",))
        assert caplog.text == ""
        X86Platform(1, ("scalar", "avx512fast"))  # refused by every processor unless --numerics fast
    assert "level avx512fast, asked for by --isa or OCTAVO_ISA, is not used: " in caplog.text
    with pytest.raises(ConfigError, match=r"unknown level 'sse9' in --isa or OCTAVO_ISA; allowed are scalar, avx2"):
        X86Platform(1, ("sse9",))


def test_memory_that_the_system_refuses_is_an_error_that_says_what_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(num_bytes: int) -> None:
        raise RuntimeError(f"arena: the system refused {num_bytes} bytes")

    native = X86Platform(1).native
    monkeypatch.setattr(native, "module", SimpleNamespace(Arena=refuse))
    with pytest.raises(PlatformError, match=r"4096 bytes of memory were asked for \(weights\), .* raise the limit"):
        native.arena(4096, "weights")


def test_a_module_of_other_sources_says_what_to_do() -> None:
    for fields in ({}, {f"field{i}": 0 for i in range(10)}):
        with pytest.raises(ValueError, match=r"add__scalar: .* of different sources: install again"):
            load().Program().add([(0, "add__scalar")], (3, 1), fields)
