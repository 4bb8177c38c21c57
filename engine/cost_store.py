"""What steps were found to cost, kept between runs: one small JSON file per platform, chip, threads and levels.

A model that ran here before starts with its own terms; another model starts with how the newest one's terms compared to
what was expected of them. A file that is damaged or of another version counts as none; where the folder cannot be written
nothing is kept. Written whole and renamed, so that a torn file is never seen. Called off the path of requests.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import blake3
import msgspec

from octavo.engine.cost import TERMS, CostModel, expected_terms
from octavo.engine.models.spec import DecoderSpec
from octavo.platforms.chip import chip_name
from octavo.platforms.platform import Platform
from octavo.platforms.types import KVSpec

log = logging.getLogger("octavo.engine")
VERSION = 1
MAX_MODELS = 32
MIN_STEPS = 32  # steps between two writes, at least
SAVE_S = 60.0  # seconds between two writes, at least
_DOUBT_OWN, _DOUBT_OTHER = 0.1, 0.5
_MOST_APART = 4.0
_KV_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1, "fp8": 1}


class Learned(msgspec.Struct):
    """Terms of one model: seconds per unit, and as shares of what was expected (both as `cost.TERMS`)."""

    name: str
    terms: list[float]
    shares: list[float]
    num_steps: int
    saved_at: float

    @property
    def is_sound(self) -> bool:
        values = [*self.terms, *self.shares]
        return len(self.terms) == len(self.shares) == len(TERMS) and all(0 < v < math.inf for v in values)


class CostFile(msgspec.Struct):
    """The file."""

    version: int
    place: str
    models: dict[str, Learned]


@dataclass(frozen=True)
class CostStore:
    """The file of one place. `identity` of a model below: bytes that change with its weights and KV."""

    folder: Path
    place: str

    @classmethod
    def on(cls, cache_dir: Path, platform: Platform) -> CostStore:
        """The store of this machine and platform."""
        levels = ",".join(platform.levels)
        return cls(cache_dir / "costs", f"{platform.name} {levels}, {platform.num_threads} threads, {chip_name()}")

    @property
    def path(self) -> Path:
        return self.folder / f"{blake3.blake3(self.place.encode()).hexdigest(8)}.json"

    def models(self) -> dict[str, Learned]:
        """What is known, by identity (hex), oldest first."""
        try:
            file = msgspec.json.decode(self.path.read_bytes(), type=CostFile)
        except (OSError, msgspec.MsgspecError):
            return {}
        if file.version != VERSION or file.place != self.place:
            return {}
        sound = [(name, found) for name, found in file.models.items() if found.is_sound]
        return dict(sorted(sound, key=lambda item: item[1].saved_at))

    def save(self, identity: bytes, learned: Learned) -> bool:
        """Keeps a model's terms; False where that cannot be."""
        models = self.models()
        models.pop(identity.hex(), None)
        kept = [*models.items(), (identity.hex(), learned)][-MAX_MODELS:]
        text = msgspec.json.format(msgspec.json.encode(CostFile(VERSION, self.place, dict(kept))))
        name = ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".costs-", dir=self.folder)
            with os.fdopen(handle, "wb") as out:
                out.write(text)
            os.replace(name, self.path)
        except OSError as error:
            log.debug("what steps cost is not kept: %s", error)
            with contextlib.suppress(OSError):
                os.unlink(name)
            return False
        return True


class CostKeeper:
    """A model's costs and where they are kept."""

    def __init__(self, store: CostStore, identity: bytes, name: str, prior: Sequence[float]) -> None:
        self.store = store
        self.identity = identity
        self._name = name
        self._prior = tuple(prior)
        self._saved_steps = 0
        self._saved_s = -math.inf

    def found(self) -> Learned | None:
        """What an earlier run of this model learned."""
        return self.store.models().get(self.identity.hex())

    def open(self, windows: Sequence[int], knee: int) -> CostModel:
        """The model, starting from what is known."""
        models = self.store.models()
        own = models.get(self.identity.hex())
        if own is not None:
            return CostModel(own.terms, windows=windows, knee=knee, doubt=_DOUBT_OWN)
        if models:
            shares = list(models.values())[-1].shares
            middle = sorted(shares)[
                len(shares) // 2
            ]  # a term that one model's steps hardly show may be far off for another
            known = [
                term * min(max(share, middle / _MOST_APART), middle * _MOST_APART)
                for term, share in zip(self._prior, shares, strict=True)
            ]
            return CostModel(known, windows=windows, knee=knee, doubt=_DOUBT_OTHER)
        return CostModel(self._prior, windows=windows, knee=knee)

    def save(self, cost: CostModel, *, is_last: bool = False) -> bool:
        """Writes what was learned if that is worth it by now; says if it did. `is_last`: there is no later."""
        now = time.monotonic()
        is_due = is_last or now - self._saved_s >= SAVE_S
        if cost.num_steps - self._saved_steps < MIN_STEPS or not is_due:
            return False
        self._saved_steps, self._saved_s = cost.num_steps, now
        terms = list(cost.terms.values())
        shares = [term / prior for term, prior in zip(terms, self._prior, strict=True)]
        return self.store.save(self.identity, Learned(self._name, terms, shares, cost.num_steps, time.time()))


def expected_of(spec: DecoderSpec, kv: KVSpec, weights_bytes: int) -> tuple[float, ...]:
    """Terms that a model's sizes let expect (in proportion; see `cost.expected_terms`)."""
    heads, num_layers = spec.heads * spec.head_dim, len(spec.layers)
    layer = spec.hidden * (2 * heads + 2 * spec.kv_heads * spec.head_dim + spec.ffn * (3 if spec.is_gated else 2))
    return expected_terms(
        linear_ops=2.0 * num_layers * layer,
        linear_bytes=weights_bytes,
        head_ops=2.0 * spec.hidden * spec.vocab,
        pair_ops=4.0 * num_layers * heads,
        kv_bytes=2.0 * num_layers * kv.num_kv_heads * kv.head_dim * _KV_BYTES[kv.dtype],
    )
