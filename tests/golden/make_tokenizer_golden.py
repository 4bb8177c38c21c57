"""Make tests/golden/tokenizers/*.json: small vocabularies and digests of their ids, from independent implementations.

    python tests/golden/make_tokenizer_golden.py sentencepiece             needs the sentencepiece package
    python tests/golden/make_tokenizer_golden.py llama_cpp NAME FILE.gguf  needs llama-cpp-python; NAME names the golden file
    python tests/golden/make_tokenizer_golden.py transformers FILE.gguf    needs transformers; compares, writes nothing

The corpus is tests/engine/text/corpus.py, 10,000 lines; one digest covers 100 lines. Run from the repository root.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "src")]

from tests.engine.text.corpus import digests, make_lines  # noqa: E402

FOLDER = Path(__file__).parent / "tokenizers"
NUM_LINES = 10_000
# Its trainer knows no text line with these characters, and its encoder treats U+2581 as a space, so they are left out.
SENTENCEPIECE_WITHOUT = ("control", "space")


def write(name: str, value: dict[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{name}.json").write_text(text + "\n", "utf-8")
    print(f"{name}: {len(text)} bytes")


def sentencepiece_lines() -> list[str]:
    """Without threefold repeats: "..." + "." and "." + "..." score the same, and which one wins is not defined."""
    lines = make_lines(NUM_LINES, without=SENTENCEPIECE_WITHOUT)
    lines = [line.replace("\n", " ").replace("\u2581", "_") for line in lines]
    return [re.sub(r"\.{4,}", "...", line) for line in lines if not re.search(r"(\w{2,})\1\1", line)]


def make_sentencepiece() -> None:
    import sentencepiece

    lines = sentencepiece_lines()
    kinds = {"bpe": "llama", "unigram": "t5"}
    for kind, model_name in kinds.items():
        for has_prefix in (True, False):
            model = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines[:3000]),
                model_writer=model,
                model_type=kind,
                vocab_size=900,
                byte_fallback=True,
                character_coverage=0.98,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=has_prefix,
                split_digits=True,
                control_symbols=["<|turn|>", "<|end|>"],
                user_defined_symbols=["<tool>", "</tool>", "\u2581\u2581\u2581"],
                minloglevel=2,
                num_threads=1,
            )
            sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
            ids = range(sp.get_piece_size())
            types = [
                2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids
            ]  # the package does not tell user-defined pieces apart, so by name
            pieces = [sp.id_to_piece(i) for i in ids]
            for name in ("<tool>", "</tool>", "\u2581\u2581\u2581"):
                types[pieces.index(name)] = 4
            write(
                f"sentencepiece_{kind}_{'prefix' if has_prefix else 'plain'}",
                {
                    "model": model_name,
                    "add_space_prefix": has_prefix,
                    # converters write the spaces of user-defined pieces as spaces
                    "tokens": [p.replace("\u2581", " ") if t == 4 else p for p, t in zip(pieces, types, strict=True)],
                    "scores": [round(sp.get_score(i), 6) for i in ids],
                    "types": types,
                    "digests": digests(sp.encode(line) for line in lines),
                },
            )


def make_llama_cpp(name: str, path: str) -> None:
    import llama_cpp

    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    lines = make_lines(NUM_LINES)
    ids = [model.tokenize(line.encode(), add_bos=False, special=False) for line in lines]
    write(name, {"source": f"llama-cpp-python {llama_cpp.__version__}", "digests": digests(ids)})


def compare_transformers(path: str) -> None:
    from transformers import AutoTokenizer

    from octavo.engine.loading.gguf import GGUFFile
    from octavo.engine.text.tokenizer import Tokenizer

    file = Path(path)
    theirs = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    ours = Tokenizer.from_gguf(GGUFFile.open(path).metadata)
    # Its conversion of "smollm" files splits digits as GPT-2 does, not one by one as the original; lines with digits differ.
    lines = [line for line in make_lines(NUM_LINES) if not any(char.isnumeric() for char in line)]
    different = 0
    for line in lines:
        if theirs.encode(line, add_special_tokens=False) != ours.encode(line, add_special=False):
            different += 1
            if different <= 5:
                print("differs:", repr(line))
    print(f"{different} of {len(lines)} lines differ")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["sentencepiece"]:
        make_sentencepiece()
    elif arguments[:1] == ["llama_cpp"] and len(arguments) == 3:
        make_llama_cpp(arguments[1], arguments[2])
    elif arguments[:1] == ["transformers"] and len(arguments) == 2:
        compare_transformers(arguments[1])
    else:
        sys.exit(__doc__)
