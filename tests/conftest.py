"""What all tests share: child processes find the package under test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"


@pytest.fixture(autouse=True, scope="session")
def child_processes_find_octavo() -> None:
    """pytest's own path is not inherited; a checkout that is not installed needs this one."""
    parts = [str(SOURCE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(parts))
