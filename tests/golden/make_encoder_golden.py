"""Makes or checks `tests/golden/encoders/*.npz`: hidden states of transformers (float32, eager) for tiny_encoders.py, or of
released_encoders.py where transformers has no such model.

    python tests/golden/make_encoder_golden.py CASE ...   write the files of these cases (without CASE: of all)
    python tests/golden/make_encoder_golden.py --check    regenerate and compare within 1e-5; exit 1 on a difference
    ... --dump FOLDER                                     also write all hidden states of two lengths (ci/test-oracle)

Needs torch and transformers; run from the repository root with PYTHONPATH=src:. so that `tests` can be imported. Each file
holds, per text length L, `hidden_L` float32 [rows, hidden] for `golden_rows(L)`.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.golden import released_encoders
from tests.golden import tiny_encoders as tiny

FOLDER = Path(__file__).parent / "encoders"
CHECK_BOUND = 1e-5
DUMP_LENGTHS = (7, 130)


def oracle_hidden(case: str) -> dict[int, NDArray[np.float32]]:
    """Length -> hidden states [length, hidden] of transformers for one case, in float32 with eager attention; by formula of a
    model that transformers does not have."""
    if case in released_encoders.CASES:
        return {length: released_encoders.hidden(case, length) for length in tiny.LENGTHS}
    import torch
    from transformers import AutoModel, T5EncoderModel

    with tempfile.TemporaryDirectory() as folder:
        tiny.write_safetensors(case, Path(folder))
        is_half = tiny.ALL[case]["model_type"] == "t5"  # of which AutoModel makes the whole
        model, report = (T5EncoderModel if is_half else AutoModel).from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    missing = [name for name in report["missing_keys"] if not name.startswith("pooler.")]
    if missing or report["mismatched_keys"]:
        raise SystemExit(f"{case}: the oracle does not take this checkpoint: {missing} {report['mismatched_keys']}")
    model.eval()
    found = {}
    with torch.no_grad():
        for length in tiny.LENGTHS:
            inputs = {"input_ids": tiny.prompt(case, length)}
            if tiny.ALL[case].get("type_vocab_size"):
                inputs["token_type_ids"] = tiny.token_types(case, length)
            given = {name: torch.from_numpy(array.astype(np.int64))[None] for name, array in inputs.items()}
            found[length] = model(**given).last_hidden_state[0].float().numpy()
    return found


def golden(hidden: dict[int, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """What the file of a case holds."""
    return {f"hidden_{length}": values[tiny.golden_rows(length)] for length, values in hidden.items()}


def source_digest() -> bytes:
    """What the checkpoints are made by, so that a dump of older ones is not compared with."""
    return hashlib.sha256(Path(tiny.__file__).read_bytes()).digest()


def main() -> int:
    """Writes the files, or compares with them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", metavar="CASE", help="of tiny_encoders.py; all if none is named")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dump", type=Path, help="also write all hidden states of two lengths")
    args = parser.parse_args()
    unknown = set(args.cases) - set(tiny.ALL)
    if unknown:
        parser.error(f"tiny_encoders.py has no case {', '.join(sorted(unknown))}; it has {', '.join(tiny.ALL)}")
    FOLDER.mkdir(exist_ok=True)
    num_bad = 0
    for case in args.cases or tiny.ALL:
        hidden = oracle_hidden(case)
        if args.dump is not None:
            args.dump.mkdir(parents=True, exist_ok=True)
            kept = {f"hidden_{length}": hidden[length] for length in DUMP_LENGTHS}
            np.savez(args.dump / f"{case}.npz", source=np.frombuffer(source_digest(), np.uint8), **kept)
        fresh = golden(hidden)
        path = FOLDER / f"{case}.npz"
        if not args.check:
            np.savez_compressed(path, **fresh)
            largest = max(float(np.abs(x).max()) for x in fresh.values())
            print(f"{case}: written, {path.stat().st_size} bytes, largest value {largest:.2f}")
            continue
        if not path.exists():
            raise SystemExit(f"{case} has no golden file; write it: ci/test oracle --write-encoders {case}")
        with np.load(path) as stored:
            worst = max(float(np.abs(stored[key] - fresh[key]).max()) for key in fresh)
        is_bad = not worst <= CHECK_BOUND
        num_bad += is_bad
        print(f"{case}: largest difference {worst:.2e} (bound {CHECK_BOUND:.0e}){' BAD' if is_bad else ''}")
    return 1 if num_bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
