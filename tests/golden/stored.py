"""What makers of golden values of sentence-transformers do with a file: write it, or compare what it holds with fresh values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CHECK_BOUND = 1e-5


def write_or_check(what: str, file: Path, fresh: Mapping[str, NDArray[np.float32]]) -> int:
    """Writes the file; with --check on the command line compares within CHECK_BOUND instead. The exit code."""
    if "--check" not in sys.argv[1:]:
        np.savez_compressed(file, **fresh)
        print(f"{file.name}: written, {file.stat().st_size} bytes")
        return 0
    with np.load(file) as stored:
        worst = {name: float(np.abs(stored[name] - values).max()) for name, values in fresh.items()}
    bad = {name: difference for name, difference in worst.items() if not difference <= CHECK_BOUND}
    print(
        f"{what}: largest difference {max(worst.values()):.2e} (bound {CHECK_BOUND:.0e}){f' BAD {bad}' if bad else ''}"
    )
    return 1 if bad else 0
