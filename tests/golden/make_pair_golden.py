"""Makes or checks `tests/golden/pairs.npz`: scores of sentence-transformers' CrossEncoder (float32) for tiny_pairs.py.

    python tests/golden/make_pair_golden.py            write the file
    python tests/golden/make_pair_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference

Needs torch and sentence-transformers 6; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. The
file holds, per case, float32 [pairs] or [pairs, labels] of `PAIRS`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_pairs
from tests.golden.stored import write_or_check

FILE = Path(__file__).parent / "pairs.npz"


def compute() -> dict[str, NDArray[np.float32]]:
    """Case -> scores of the oracle."""
    from sentence_transformers import CrossEncoder

    found = {}
    for name in tiny_pairs.CASES:
        with tempfile.TemporaryDirectory() as folder:
            model = CrossEncoder(str(tiny_pairs.write_case(name, Path(folder))), device="cpu")
            found[name] = np.asarray(model.predict(list(tiny_pairs.PAIRS)), np.float32)
    return found


if __name__ == "__main__":
    raise SystemExit(write_or_check("pairs", FILE, compute()))
