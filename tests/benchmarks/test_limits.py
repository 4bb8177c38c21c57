"""The machine's limits are rates, and are measured or said to be missing."""

from __future__ import annotations

import pytest
from benchmarks import limits


def test_limits_are_rates_of_known_names() -> None:
    try:
        found = limits.measured(1, 1)
    except RuntimeError as error:
        assert "compiler" in str(error)
        pytest.skip(str(error))
    known = {f"{kind}__{level}" for kind in ("f32", "bf16", "int8") for level in limits.LEVELS[""]}
    assert found.keys() <= known | {"read"} and all(1e8 < rate < 1e15 for rate in found.values())


def test_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(limits.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler"):
        limits.measured.__wrapped__(1)


def test_failing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(RuntimeError, match="false: status 1"):
        limits.measured.__wrapped__(1)
