"""Octavo's embedder and its peers: one text at a time, batches of short and of long texts, mixed lengths, start to first vector.

    octavo bench embed -- --model FOLDER --onnx FOLDER --peers-folder PEERS [--width 16 8] [--cells one batch.20 mixed]

MODEL is a sentence-transformers folder that ends in its mean and a normalisation (all-MiniLM-L6-v2), --onnx what
`peers/export_onnx.py` made of it. Text goes in, vectors come out, tokenizers included; a word of a text is one token. Cells:

one        milliseconds of a call with one text of 12 tokens, median of 100 calls in a row; one.p99 their 99th percentile
batch.N    texts a second, 32 texts of N tokens in one call
mixed      texts a second, 256 texts of log-normal lengths (median 40 tokens, at most 256) in one call
start      seconds from the start of the process to the first vector, files in the page cache
memory     MiB, the peak of the process's resident memory after the other cells
cosine     least cosine of 500 texts to our vectors in float32 (which are sentence-transformers' within 1e-5)

Contenders of a width are those whose weights take at most so many bits: formats of fewer bits beside ours of 8 are compared, too.
Turns, quiet repetitions and columns are those of the benchmark `table`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cells import Prompts
from benchmarks.common import Peer, Samples, parser, report, row, say, significant
from benchmarks.contenders import PEERS_HOME, Contender, Engine
from benchmarks.grid import Entry, Found, Grid, Results, Setting, median
from benchmarks.processes import PeerProcess
from benchmarks.table import best_of, cell_text, times_as_fast

#: words that are one token in BERT's vocabularies, and most others
_WORDS = (
    "the of and to in is was for as on with by he at from his it an were are which this be or had first one their its "
    "new after but who not they have her she two been other when time there during into school all more only some "
    "world could city these over years most no made then state many such under later would part three known between "
    "him second up use war film where house work well early game line name day still show group music water book "
    "small family south north life four team high number became head called again both down right place several long "
    "river power old best great next side open"
)
WORDS = _WORDS.split()
SPECIAL = 2  # tokens around a text
USUAL = ("one", "one.p99", "batch.20", "batch.200", "mixed", "start", "memory", "cosine")
#: width -> engine names with forms; the first of ours is the one that is meant
OURS = {"32": ("f32",), "16": ("bf16",), "8": ("q8_0", "w8a8")}
THEIRS = {
    "32": (("sentence-transformers", "f32"), ("onnxruntime", "f32"), ("openvino", "f32"), ("vllm", "f32")),
    "16": (("sentence-transformers", "bf16"), ("openvino", "bf16"), ("vllm", "bf16")),
    "8": (("onnxruntime", "int8"), ("openvino", "int8")),
}
SCRIPTS = {"octavo": "embed_ours.py", "sentence-transformers": "embed_st.py", "vllm": "embed_vllm.py"}


class Texts:
    """Texts that never repeat, of so many tokens."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)

    def __call__(self, num_tokens: int) -> str:
        """Words of one token each, with room for the special ones."""
        return " ".join(self._rng.choices(WORDS, k=max(1, num_tokens - SPECIAL)))

    def mixed(self, count: int) -> list[str]:
        """Log-normal lengths around 40 tokens, 3 to 256."""
        lengths = (round(math.exp(self._rng.gauss(math.log(40), 0.8))) for _ in range(count))
        return [self(min(256, max(3, length))) for length in lengths]


@dataclass(frozen=True)
class EmbedCell:
    """One cell, as `Grid` asks for them."""

    name: str
    texts: Texts

    @property
    def kind(self) -> str:
        """`start` is measured by starting processes."""
        return self.name.partition(".")[0]

    @property
    def unit(self) -> str:
        """Of its value."""
        return {"one": "ms", "start": "s", "memory": "MiB", "cosine": "cosine"}.get(self.kind, "texts/s")

    @property
    def better(self) -> str:
        """higher or lower."""
        return "higher" if self.unit in ("texts/s", "cosine") else "lower"

    def command(self, prompts: Prompts) -> dict[str, Any]:
        """What the engine is asked."""
        del prompts
        if self.kind == "memory":
            return {"do": "memory"}
        if self.kind == "one":
            return {"do": "embed", "texts": [self.texts(12) for _ in range(100)], "alone": True}
        if self.kind == "mixed":
            return {"do": "embed", "texts": self.texts.mixed(256)}
        return {"do": "embed", "texts": [self.texts(int(self.name.partition(".")[2])) for _ in range(32)]}

    def value(self, answer: Mapping[str, Any]) -> float:
        """The answer's worth in the cell's unit."""
        if self.kind == "memory":
            return float(answer["bytes"]) / (1 << 20)
        if self.kind == "one":
            each = sorted(answer["each"])
            return 1e3 * (each[int(0.99 * len(each))] if self.name.endswith("p99") else statistics.median(each))
        return self._count / float(answer["seconds"])

    @property
    def _count(self) -> int:
        return 256 if self.kind == "mixed" else 32


def parse_cell(name: str, texts: Texts) -> EmbedCell:
    """ValueError for a cell that there is not."""
    kind, _, count = name.partition(".")
    is_batch = kind == "batch" and count.isascii() and count.isdigit() and 3 <= int(count) <= 256
    if not is_batch and name not in USUAL:
        raise ValueError(f"there is no cell {name!r}; allowed are {', '.join(USUAL)}, batch.N of 3 to 256 tokens")
    return EmbedCell(name, texts)


def contender(name: str, form: str) -> Contender:
    """An engine of embeddings with a form of the model."""
    env = {"EMBED_FORM": "none" if (name, form) == ("octavo", "f32") else form, "EMBED_ENGINE": name}
    script = SCRIPTS.get(name, "embed_onnx.py")
    return Contender(Engine(name, script, "" if name == "octavo" else name, {}, env), form)


def entries_of(args: argparse.Namespace, width: str) -> list[Entry]:
    """Those whose environment and file are there; the others are named."""
    out = []
    for name, form in (*(("octavo", form) for form in OURS[width]), *THEIRS[width]):
        made = contender(name, form)
        path = args.onnx if made.engine.script == "embed_onnx.py" else args.model
        python = Path(made.engine.python(args.peers_folder))
        if path is None or not path.exists():
            say(f"{made.key}: there is no {path or '--onnx'}; peers/export_onnx.py makes it")
        elif not python.exists():
            say(f"{made.key}: there is no {python}; run benchmarks/peers/install {args.peers_folder} {name}")
        else:
            out.append(Entry(made, path))
    return out


def cosines(entries: Sequence[Entry], args: argparse.Namespace, setting: Setting) -> dict[str, float]:
    """Contender -> the least cosine of 500 texts to ours in float32."""
    texts = Texts(7)
    asked = [texts(random.Random(place).randrange(6, 60)) for place in range(500)]
    found: dict[str, Any] = {}
    plain = Entry(contender("octavo", "f32"), args.model)
    with tempfile.TemporaryDirectory() as folder:
        for entry in (plain, *entries):
            python, script, *words = setting.words(entry.contender, entry.path)
            file = os.path.join(folder, "vectors")
            try:
                with PeerProcess(python, script, *words, env=setting.env(entry.contender)) as process:
                    process.ask(do="embed", texts=asked, file=file)
            except (RuntimeError, OSError) as error:
                say(f"{entry.key}: {error}")
                continue
            vectors = np.fromfile(file, np.float32).reshape(len(asked), -1).astype(np.float64)
            found[entry.key] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    wanted = found[plain.key]
    return {key: float((vectors * wanted).sum(axis=1).min()) for key, vectors in found.items()}


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows, each when it is complete; tables go to stderr."""
    texts = Texts()
    cells = [parse_cell(name, texts) for name in args.cells]
    for width in args.width:
        entries = entries_of(args, width)
        ours = [entry.key for entry in entries if entry.contender.is_ours]
        peers = [entry.key for entry in entries if not entry.contender.is_ours]
        setting = Setting(args.peers_folder, args.threads, args.repeats, args.budget, "", args.realtime)
        grid = Grid(setting)
        timed = [cell for cell in cells if cell.kind != "cosine"]
        made = []
        for cell in grid.run(entries, timed, is_apart=args.apart):  # type: ignore[arg-type]
            found = _row(cell, grid.results, ours, peers, width, args.threads)
            if found is not None:
                made.append(found)
                yield found
        if len(timed) < len(cells):
            least = cosines(entries, args, setting)
            every = {key: Found(samples=Samples([least[key]], [0.0])) for key in ours + peers if key in least}
            cell = EmbedCell("cosine", texts)
            found = _row(
                cell, {("cosine", key): value for key, value in every.items()}, ours, peers, width, args.threads
            )
            if found is not None:
                made.append(found)
                yield found
        if made:
            say(f"\n{_markdown(f'{args.model.name}, {width} bits', made)}\n")


def _row(
    cell: EmbedCell, found: Results, ours: list[str], peers: list[str], width: str, threads: int
) -> dict[str, Any] | None:
    """The cell as a result: the best of ours beside the best of the peers."""
    best, theirs = (best_of(found, cell, keys) for keys in (ours, peers))  # type: ignore[arg-type]
    if not (best or theirs):
        return None
    peer, more = None, {"by": best or theirs}
    if best and theirs:
        other = found[cell.name, theirs]
        peer = Peer(theirs, other.version, other.samples)
        pair = [median(found[cell.name, key]) for key in (best, theirs)]
        more["times"] = significant(times_as_fast(cell, *pair), 4)  # type: ignore[arg-type]
    more["all"] = {key: _one(found.get((cell.name, key))) for key in ours + peers}
    samples = found[cell.name, best or theirs].samples
    return row(
        f"embed.minilm.{width}.{cell.name}", cell.unit, samples, better=cell.better, peer=peer, threads=threads, **more
    )


def _one(found: Found | None) -> dict[str, Any]:
    if found is None or not found.samples.values:
        return {"error": found.error if found else "not run"}
    kept = found.samples.kept()
    values = {"min": min(kept.values), "median": median(found), "max": max(kept.values)}
    out: dict[str, Any] = {name: significant(value) for name, value in values.items()} | {"n": len(kept.values)}
    return out | ({"other_load": round(max(kept.other), 3)} if kept.other and max(kept.other) > 0.06 else {})


def _markdown(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """A line for each cell, a column for each contender."""
    keys = list(rows[0]["all"])
    lines = [f"### {title}", "", "| cell | unit | " + " | ".join(keys) + " | best peer | times |"]
    lines.append("|" + " --- |" * (len(keys) + 4))
    for made in rows:
        texts = [cell_text(made["all"].get(key, {})) for key in keys]
        ratio = f"**{made['times']:.2f}**" if "times" in made else "-"
        name = made["name"].split(".", 3)[3]
        lines.append(f"| {name} | {made['unit']} | {' | '.join(texts)} | {made.get('peer', '')} | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="a sentence-transformers folder")
    options.add_argument("--onnx", type=Path, metavar="FOLDER", help="its ONNX files")
    options.add_argument("--width", nargs="+", choices=OURS, default=["16", "8"], help="bits of a weight")
    options.add_argument("--cells", nargs="+", metavar="CELL", default=list(USUAL))
    options.add_argument("--peers-folder", type=Path, default=PEERS_HOME, help="default %(default)s")
    options.add_argument("--apart", action="store_true", help="one engine in memory at a time")
    about = "seconds of every repetition at real-time priority, on a machine that others use (needs root)"
    options.add_argument("--realtime", type=float, metavar="S", default=0.0, help=about)
    args = options.parse_args()
    try:
        for name in args.cells:
            parse_cell(name, Texts())
    except ValueError as error:
        options.error(str(error))
    report(results(args), args, "embed")


if __name__ == "__main__":
    main()
