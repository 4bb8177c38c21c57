"""Makes or checks `tests/golden/pairs.npz`: scores of sentence-transformers' CrossEncoder (float32) for tiny_pairs.py.

    python tests/golden/make_pair_golden.py            write the file
    python tests/golden/make_pair_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference

Needs torch and sentence-transformers 6; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. The
file holds, per case, float32 [pairs] or [pairs, labels] of `PAIRS`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny_pairs

FILE = Path(__file__).parent / "pairs.npz"
CHECK_BOUND = 1e-5


def compute() -> dict[str, NDArray[np.float32]]:
    """Case -> scores of the oracle."""
    from sentence_transformers import CrossEncoder

    found = {}
    for name in tiny_pairs.CASES:
        with tempfile.TemporaryDirectory() as folder:
            model = CrossEncoder(str(tiny_pairs.write_case(name, Path(folder))), device="cpu")
            found[name] = np.asarray(model.predict(list(tiny_pairs.PAIRS)), np.float32)
    return found


def main() -> int:
    """Writes the file, or compares with it."""
    fresh = compute()
    if "--check" not in sys.argv[1:]:
        np.savez_compressed(FILE, **fresh)
        print(f"{FILE.name}: written, {FILE.stat().st_size} bytes")
        return 0
    with np.load(FILE) as stored:
        worst = {name: float(np.abs(stored[name] - scores).max()) for name, scores in fresh.items()}
    bad = {name: difference for name, difference in worst.items() if not difference <= CHECK_BOUND}
    print(
        f"pairs: largest difference {max(worst.values()):.2e} (bound {CHECK_BOUND:.0e}){f' BAD {bad}' if bad else ''}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
