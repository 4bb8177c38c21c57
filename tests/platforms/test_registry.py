"""The choice of a platform: what is for another kind of machine is passed over without a word, unless it was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.engine.errors import PlatformError
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
