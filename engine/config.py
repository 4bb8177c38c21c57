"""Options of the engine and the environment variables it reads: all of them, here and nowhere else.

A bad value is a ConfigError naming the variable, the value and the choices. Budget: twelve variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.engine.errors import ConfigError

#: name -> what it does (printed by `octavo doctor` and the docs)
ENVIRONMENT = {
    "OCTAVO_PLATFORM": "what runs without --device: auto, cpu, cuda, rocm, cuda:1, x86, arm, portable, torch, reference",
    "OCTAVO_ISA": "comma list of CPU feature levels to intersect with what the chip has, e.g. avx2 or avx2,avx512",
    "OCTAVO_NUMERICS": "exact (default of CPUs): the same bits on every chip; fast (default of GPUs): quicker, last bits differ",
    "OCTAVO_QUANTIZATION": "format that the layers of a model of floats are rounded to while it is loaded, e.g. q8_0; or none",
    "OCTAVO_THREADS": "compute threads (default: the CPU budget of this container)",
    "OCTAVO_CACHE": "cache folder (default ~/.cache/octavo)",
    "OCTAVO_OFFLINE": "1: never touch the network",
    "OCTAVO_API_KEY": "API key(s) of the server, comma separated",
    "OCTAVO_LOG": "log level: debug, info, warning, error",
}
SECRETS = ("OCTAVO_API_KEY",)
MAX_THREADS = 1024
MAX_ITL_MS = 600_000.0
_LEVELS = ("debug", "info", "warning", "error")
#: options of EngineConfig that are words, and those that are counts, with their least value
CHOICES: dict[str, tuple[str, ...]] = {
    "kv_dtype": ("f32", "bf16", "f16", "int8", "fp8"),
    "policy": ("fcfs", "priority"),
    "packed_cache": ("auto", "on", "off"),
    "numerics": ("exact", "fast"),
    "quantization": (  # the formats that octavo.quant can round to
        *("none", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"),
        *("w8a8", "i4g32", "i4g64", "i4g128"),
    ),
}
#: other names of a choice, and names that others know and that are not served, with what to take instead
ALIASES = {"kv_dtype": {"fp8_e4m3": "fp8"}}
INSTEAD = {"kv_dtype": {"fp8_e5m2": "fp8 (E4M3), of one bit more: with a scale per token and head nothing overflows"}}
_NOT_GIVEN = ("numerics", "quantization")  # None means the environment's
LEAST = {
    "num_threads": 1, "max_model_len": 2, "max_batch_tokens": 1, "max_num_seqs": 1, "max_queue": 1, "kv_bytes": 1,
    "block_tokens": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Environment:
    """The environment, parsed once."""

    platform: str | None = None
    isa: tuple[str, ...] | None = None
    numerics: str = ""  # exact or fast; not given: what the platform is made for (CPUs: exact, GPUs: fast)
    quantization: str = "none"
    threads: int | None = None
    cache: Path = Path("~/.cache/octavo")
    is_offline: bool = False
    api_keys: tuple[str, ...] = ()
    log: str = "info"


def read_environment(environ: Mapping[str, str] | None = None) -> Environment:
    """Parses the OCTAVO_ variables; unknown OCTAVO_ names and bad values raise ConfigError."""
    env = os.environ if environ is None else environ
    for name in env:
        if name.startswith("OCTAVO_") and name not in ENVIRONMENT:
            raise ConfigError(f"unknown environment variable {name}; known: {', '.join(ENVIRONMENT)}; unset it")

    def text(name: str) -> str | None:
        value = env.get(name, "").strip()
        return value or None

    threads = text("OCTAVO_THREADS")
    if threads is not None and not (threads.isascii() and threads.isdigit() and 1 <= int(threads) <= MAX_THREADS):
        raise ConfigError(f"OCTAVO_THREADS={threads}: not a whole number from 1 to {MAX_THREADS}; set one or unset it")
    offline = (text("OCTAVO_OFFLINE") or "0").lower()
    if offline not in ("0", "1", "true", "false"):
        raise ConfigError(f"OCTAVO_OFFLINE={offline}: allowed are 0, 1, true, false")
    log = (text("OCTAVO_LOG") or "info").lower()
    if log not in _LEVELS:
        raise ConfigError(f"OCTAVO_LOG={log}: allowed are {', '.join(_LEVELS)}")

    def word(option: str, usual: str) -> str:
        name = f"OCTAVO_{option.upper()}"
        value = (text(name) or usual).lower()
        if value and value not in CHOICES[option]:
            raise ConfigError(f"{name}={value}: allowed are {', '.join(CHOICES[option])}")
        return value

    isa = text("OCTAVO_ISA")
    return Environment(
        platform=text("OCTAVO_PLATFORM"),
        isa=None if isa is None else levels_of(isa),
        numerics=word("numerics", ""),
        quantization=word("quantization", "none"),
        threads=None if threads is None else int(threads),
        cache=Path(text("OCTAVO_CACHE") or "~/.cache/octavo").expanduser(),
        is_offline=offline in ("1", "true"),
        api_keys=tuple(key for key in (text("OCTAVO_API_KEY") or "").split(",") if key),
        log=log,
    )


def levels_of(text: str) -> tuple[str, ...]:
    """The CPU levels of a comma list. ConfigError if it names none: all levels are asked for by leaving it out."""
    levels = tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if not levels:
        raise ConfigError(
            f"{text!r} names no CPU level (--isa, OCTAVO_ISA); give some that `octavo doctor` lists, or leave it out"
        )
    return levels


def shown_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """OCTAVO_ variables that are set, known or not, fit to be printed: secrets are not shown."""
    env = os.environ if environ is None else environ
    shown = {name: "(set, not shown)" if name in SECRETS else env[name] for name in ENVIRONMENT if name in env}
    return shown | {name: "(unknown)" for name in env if name.startswith("OCTAVO_") and name not in ENVIRONMENT}


def word_of(option: str, value: str) -> str:
    """`value`, by its usual name where it has another. ConfigError for one of `INSTEAD`."""
    if value in INSTEAD.get(option, {}):
        raise ConfigError(f"{option}={value}: allowed are {', '.join(CHOICES[option])}; take {INSTEAD[option][value]}")
    return ALIASES.get(option, {}).get(value, value)


@dataclass(frozen=True)
class EngineConfig:
    """Options of one engine. Sizes in tokens or blocks; bytes say so. A value out of range is a ConfigError at once."""

    model: str
    tokenizer: str | None = None  # folder or file to take the tokenizer from; part of the KV cache's identity here
    device: str | None = None  # auto, cpu, cuda, rocm, cuda:1, or a platform's name; None: `platform`
    platform: str | None = None  # a platform's name; None: the environment's, or auto
    isa: tuple[str, ...] | None = None  # CPU levels; a comma list of them will do; None: the environment's, or all
    numerics: str | None = None  # exact or fast; None: the environment's
    num_threads: int | None = None
    max_model_len: int | None = None  # None: the model's own, cut to what the pool can hold
    max_batch_tokens: int = 512
    max_num_seqs: int = 64
    max_queue: int = 4096
    kv_dtype: str = "bf16"
    kv_bytes: int | None = None  # None: planned from the memory limit
    block_tokens: int | None = None  # None: the platform's (32 on CPU)
    has_prefix_cache: bool = True
    has_partial_reuse: bool = True
    policy: str = "fcfs"
    itl_ms: float | None = None  # time between a stream's tokens that prompts of others must leave; None: no limit
    is_offline: bool = False
    cache_dir: str | None = None  # None: the environment's
    packed_cache: str = "auto"  # keep packed weights on disk: auto (models worth it), on, off
    expand_weights: bool = False  # expand every weight to float32 (parity runs)
    quantization: str | None = (
        None  # format that layers of floats are rounded to while loading; None: the environment's
    )
    quantize_head: bool = False  # the head's matrix, too

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_dtype", word_of("kv_dtype", self.kv_dtype))
        isa: object = self.isa
        if isinstance(isa, str):
            object.__setattr__(self, "isa", levels_of(isa))
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in (*allowed, *((None,) if name in _NOT_GIVEN else ())):
                raise ConfigError(f"{name}={getattr(self, name)}: allowed are {', '.join(allowed)}")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigError(f"{name}={value!r}: it must be a whole number")
            if value is not None and value < least:
                raise ConfigError(f"{name}={value}: it must be at least {least}")
        if self.device is not None and self.platform is not None:
            raise ConfigError(f"device={self.device} and platform={self.platform} were both given; give device alone")
        if self.num_threads is not None and self.num_threads > MAX_THREADS:
            raise ConfigError(f"num_threads={self.num_threads}: it must be at most {MAX_THREADS}")
        if self.itl_ms is not None and (isinstance(self.itl_ms, bool) or not isinstance(self.itl_ms, (int, float))):
            raise ConfigError(f"itl_ms={self.itl_ms!r}: it must be a number")
        if self.itl_ms is not None and not 0 < self.itl_ms <= MAX_ITL_MS:
            raise ConfigError(f"itl_ms={self.itl_ms}: it must be above 0 and at most {MAX_ITL_MS:g} milliseconds")
        if self.max_num_seqs > self.max_batch_tokens:
            raise ConfigError(
                f"max_num_seqs={self.max_num_seqs}: more than max_batch_tokens={self.max_batch_tokens}, and every request "
                "in a step takes a token; lower it or raise max_batch_tokens"
            )


@dataclass(frozen=True)
class WeightChange:
    """What becomes of stored weights: all to float32, or the layers' (and the head's) to a format, '' for as they are."""

    is_expanding: bool = False
    quantization: str = ""
    is_head_too: bool = False

    def __str__(self) -> str:
        """What tells models of the same files apart; '' for weights as stored."""
        if self.is_expanding:
            return "expanded"
        return self.quantization + ("+head" if self.is_head_too else "")


def weight_change(config: EngineConfig, environment: Environment) -> WeightChange:
    """The options and the environment together. ConfigError where they contradict each other."""
    asked = config.quantization or environment.quantization
    form = "" if asked == "none" else asked
    if form and config.expand_weights:
        raise ConfigError(
            f"expand_weights and quantization={form} (--quantization, OCTAVO_QUANTIZATION) were asked for: weights are widened "
            "to float32 or rounded, not both; leave one out"
        )
    if config.quantize_head and not form:
        raise ConfigError(
            "quantize_head (--quantize-head) was asked for without a format; give quantization (--quantization) too, one of "
            + ", ".join(CHOICES["quantization"][1:])
        )
    return WeightChange(config.expand_weights, form, config.quantize_head)
