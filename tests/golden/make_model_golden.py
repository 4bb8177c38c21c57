"""Makes or checks `tests/golden/models/*.npz`: logits of transformers (float32, eager) for the tiny checkpoints of
tiny.py.

    python tests/golden/make_model_golden.py CASE ...   write the files of these cases (without CASE: of all)
    python tests/golden/make_model_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference
    ... --dump FOLDER                                   also write all logits of two lengths (ci/test-oracle)

Needs torch and transformers; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. Each
file holds, per prompt length L, `logits_L` float32 [rows, columns] for `golden_rows(L)` and `GOLDEN_COLUMNS`. Prompts
longer than the short range of longrope are the oracle's long choice: it chooses per call, Octavo once per model.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny

FOLDER = Path(__file__).parent / "models"
CHECK_BOUND = 1e-5
DUMP_LENGTHS = (7, 200)


def oracle_logits(case: str, lengths: tuple[int, ...] = tiny.LENGTHS) -> dict[int, NDArray[np.float32]]:
    """Length -> all logits [length, vocab] of transformers for one case, in float32 with eager attention."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        tiny.write_safetensors(case, Path(folder))
        config = AutoConfig.from_pretrained(folder)
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    wrong = {key: sorted(value) for key, value in report.items() if value}
    if wrong:
        raise SystemExit(f"{case}: the oracle does not take this checkpoint: {wrong}")
    model.eval()
    found = {}
    with torch.no_grad():
        for length in lengths:
            ids = torch.from_numpy(tiny.prompt(case, length).astype(np.int64))[None]
            found[length] = model(input_ids=ids, use_cache=False).logits[0].float().numpy()
    return found


def golden(logits: dict[int, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """What the file of a case holds, of all its logits."""
    return {
        f"logits_{length}": values[tiny.golden_rows(length), tiny.GOLDEN_COLUMNS] for length, values in logits.items()
    }


def source_digest() -> bytes:
    """What the checkpoints are made by, so that a dump of older ones is not compared with."""
    return hashlib.sha256(Path(tiny.__file__).read_bytes()).digest()


def main() -> int:
    """Writes the files, or compares with them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", metavar="CASE", help="of tiny.py; all if none is named")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dump", type=Path, help="also write all logits of two lengths, for the live comparison")
    args = parser.parse_args()
    unknown = set(args.cases) - set(tiny.CASES)
    if unknown:
        parser.error(f"tiny.py has no case {', '.join(sorted(unknown))}; it has {', '.join(tiny.CASES)}")
    FOLDER.mkdir(exist_ok=True)
    num_bad = 0
    for case in args.cases or tiny.CASES:
        logits = oracle_logits(case)
        if args.dump is not None:
            args.dump.mkdir(parents=True, exist_ok=True)
            kept = {f"logits_{length}": logits[length] for length in DUMP_LENGTHS}
            np.savez(args.dump / f"{case}.npz", source=np.frombuffer(source_digest(), np.uint8), **kept)
        fresh = golden(logits)
        path = FOLDER / f"{case}.npz"
        if not args.check:
            np.savez_compressed(path, **fresh)
            largest = max(float(np.abs(x).max()) for x in fresh.values())
            print(f"{case}: written, {path.stat().st_size} bytes, largest logit {largest:.2f}")
            continue
        if not path.exists():
            raise SystemExit(f"{case} has no golden file; write it: ci/test oracle --write {case}")
        with np.load(path) as stored:
            worst = max(float(np.abs(stored[key] - fresh[key]).max()) for key in fresh)
        is_bad = not worst <= CHECK_BOUND
        num_bad += is_bad
        print(f"{case}: largest difference {worst:.2e} (bound {CHECK_BOUND:.0e}){' BAD' if is_bad else ''}")
    return 1 if num_bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
