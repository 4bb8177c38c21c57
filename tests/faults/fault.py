"""What a planted fault is, and the list of them all.

A fault is one edit of the native sources (or one compiler flag) and the test that must fail because of it. The text to find
must occur exactly once in its file: a fault that no longer fits its kernel stops the run instead of passing silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

TABLES = ("linear", "words", "pack", "attention", "tokens", "sampling", "team")


@dataclass(frozen=True)
class Fault:
    """`find` -> `put` in `file` (relative to the checkout), caught by `test` restricted to `match` (pytest -k).

    A fault of levels that the processor lacks is passed over. Rebuilt are the translation units of `levels` (and those without
    a level) that include `file`, or exactly `units`, with `flags` added. `is_quick`: part of the short set.
    """

    name: str
    file: str
    find: str
    put: str
    test: str
    match: str = "avx2"
    levels: tuple[str, ...] = ("avx2",)
    units: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    is_quick: bool = False


def faults() -> list[Fault]:
    """Every fault of every table, in order."""
    return [fault for table in TABLES for fault in import_module(f"tests.faults.{table}").FAULTS]
