"""Makes or checks `platforms/selftest/golden.py`: a digest of the reference's bits for every case of the self-test.

    python tests/golden/make_selftest_golden.py            write the module
    python tests/golden/make_selftest_golden.py --check    regenerate and compare; exit 1 on a difference

Run from the repository root with PYTHONPATH=src. Rewritten only for new cases or together with a new NUMERICS_VERSION.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from octavo.platforms.ops import NUMERICS_VERSION
from octavo.platforms.selftest.cases import cases
from octavo.platforms.selftest.digest import ReferenceCell, digest

FILE = Path(__file__).resolve().parents[2] / "platforms/selftest/golden.py"
HEAD = '''"""Digests of the reference's bits for the self-test, by case. Written by tests/golden/make_selftest_golden.py."""

from __future__ import annotations

'''


def compute() -> dict[str, str]:
    """Case -> digest, from the reference platform."""
    cell = ReferenceCell()
    return {case.name: digest(case.run(cell)) for case in cases()}


def main() -> int:
    """Writes the module, or compares with it."""
    fresh = compute()
    if "--check" not in sys.argv[1:]:
        rows = "".join(f'    "{name}": "{value}",\n' for name, value in fresh.items())
        FILE.write_text(f"{HEAD}VERSION = {NUMERICS_VERSION}\nGOLDEN: dict[str, str] = {{\n{rows}}}\n")
        return 0
    golden = import_module("octavo.platforms.selftest.golden")
    differ = sorted(name for name in fresh.keys() | golden.GOLDEN.keys() if fresh.get(name) != golden.GOLDEN.get(name))
    for name in differ:
        print(f"{name}: the reference's bits are not the stored ones")
    return 1 if differ or golden.VERSION != NUMERICS_VERSION else 0


if __name__ == "__main__":
    raise SystemExit(main())
