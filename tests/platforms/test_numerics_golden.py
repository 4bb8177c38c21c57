"""The reference's bits are those recorded for this NUMERICS_VERSION, on this machine and this numpy."""

from __future__ import annotations

import json

from tests.golden.make_numerics_golden import FILE, TABLES, digest
from tests.platforms.test_conformance import CASES, reference_result
from tests.platforms.test_conformance import TABLES as CONFORMANCE_TABLES

from octavo.platforms.ops import NUMERICS_VERSION

HELP = "raise NUMERICS_VERSION and regenerate with tests/golden/make_numerics_golden.py, or undo the change"


def test_bits_are_those_of_this_version() -> None:
    stored = json.loads(FILE.read_text())
    assert stored["numerics_version"] == NUMERICS_VERSION, HELP
    fresh = {f"{table} {name}": digest(reference_result(table, name)) for table, name in CASES}
    changed = sorted(name for name in fresh.keys() & stored["digests"].keys() if fresh[name] != stored["digests"][name])
    assert not changed, f"{len(changed)} cases changed, first {changed[0]}: {HELP}"
    assert fresh.keys() == stored["digests"].keys(), "cases came or went: regenerate numerics.json"


def test_golden_file_covers_every_table() -> None:
    assert set(TABLES) == set(CONFORMANCE_TABLES)
