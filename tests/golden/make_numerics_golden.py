"""Makes or checks `tests/golden/numerics.json`: a digest of the reference's bits for every case of the tables.

    python tests/golden/make_numerics_golden.py            write the file
    python tests/golden/make_numerics_golden.py --check    regenerate and compare; exit 1 on a difference

Run from the repository root with PYTHONPATH=src:. . The file is rewritten only together with a new NUMERICS_VERSION, or
for new cases: a changed digest under the same version is a broken promise to caches and golden texts.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
from tests.platforms.cells import reference_cell

from octavo.platforms.ops import NUMERICS_VERSION

FILE = Path(__file__).parent / "numerics.json"
TABLES = (
    "add", "embedding", "rms_norm", "layer_norm", "rope", "linear", "linear_f8", "gated_mlp", "norm_linear", "layer_norm_linear",
    "paged_attention", "varlen_attention", "relative_attention", "softcap", "lm_head", "greedy_head", "pool",
)  # fmt: skip


def digest(values: np.ndarray) -> str:
    """Of the float32 bits, little-endian."""
    return hashlib.blake2b(np.ascontiguousarray(values).astype("<f4").tobytes(), digest_size=8).hexdigest()


def compute() -> dict[str, object]:
    """What the file holds."""
    digests = {}
    for table in TABLES:
        module = import_module(f"tests.cases.{table}")
        for case in module.CASES:
            digests[f"{table} {case.name}"] = digest(np.asarray(module.run(reference_cell(), case)))
    return {"numerics_version": NUMERICS_VERSION, "digests": digests}


def main() -> int:
    """Writes the file, or compares with it."""
    fresh = compute()
    if "--check" not in sys.argv[1:]:
        FILE.write_text(json.dumps(fresh, indent=0) + "\n")
        return 0
    stored = json.loads(FILE.read_text())
    differ = [name for name, value in fresh["digests"].items() if stored["digests"].get(name) != value]  # type: ignore[attr-defined]
    for name in differ:
        print(f"{name}: the reference's bits are not the stored ones")
    return 1 if differ or stored["numerics_version"] != NUMERICS_VERSION else 0


if __name__ == "__main__":
    raise SystemExit(main())
