"""A request and everything the scheduler knows of it: tokens, counts and block tables. No tensor, no clock, no I/O.

States: WAITING -> RUNNING -> FINISHED, RUNNING -> WAITING (preempted). LOADING is a WAITING request whose blocks are
being fetched from a lower tier, with a deadline. Units: tokens and blocks, never bytes.

How the counts relate, in tokens:  num_computed <= num_planned <= len(tokens) + num_placeholders
    tokens            prompt, then every accepted output token; append-only, so a slice of it never goes stale
    num_computed      KV is written and committed for tokens[:num_computed]
    num_planned       what the plans handed out so far will have computed once they have run
    num_placeholders  tokens that plans in flight will sample, whose ids are not known here yet
`epoch` changes whenever the block tables are thrown away: a plan entry with an older epoch speaks of KV that is gone.

With `params.n` > 1 every choice is a request of its own, told apart by `choice`, with the prompt shared through blocks.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from octavo.engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.kv.prefix import PrefixNode

FinishReason = Literal["stop", "length", "abort", "error"]


class Status(enum.Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    LOADING = "loading"
    RUNNING = "running"
    FINISHED = "finished"


class BlockTable:
    """Block ids of one group by position: `ids[i]` holds tokens [i * block_tokens, (i + 1) * block_tokens).

    `ids` only grows while the request's epoch stays the same, so whoever mirrors it copies `ids[copied:]` and is done.
    The exception needs no mirroring: entries left of `first_live` were freed behind a sliding window and read 0, the
    null block; no later query looks at them.
    """

    __slots__ = ("first_live", "ids")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.first_live = 0


class Request:
    """One choice of one request. Constructor arguments are its identity and never change; the rest is scheduling state.

    prompt        token ids, at least one
    eos_ids       token ids that end the answer unless `params.ignore_eos`
    priority      lower is more urgent (only the priority policy looks at it)
    arrival_s     clock value at arrival, seconds; the scheduler sets it when None
    salt          tenant salt: requests share cached blocks only when it is equal
    lora          adapter name or None; the digest that belongs into block identity goes to `hash_root`
    hash_root     bytes mixed into the identity of every block (adapter digest, ...)
    hash_parts    {token position: digest} mixed into the identity of the block that holds the position (images, ...)
    seed          64-bit sampling seed; `params.seed` when None, and drawn at random when that is None too
    mask          opaque per-request token mask state, handed through to the sampler
    """

    __slots__ = (
        "arrival_s",
        "block_keys",
        "capacity",
        "choice",
        "cursor",
        "drafts",
        "eos_ids",
        "epoch",
        "event_at",
        "finish_reason",
        "followers",
        "hash_at",
        "hash_parts",
        "hash_root",
        "is_admitted",
        "is_plain",
        "leader",
        "lora",
        "mask",
        "max_len",
        "min_len",
        "num_cached",
        "num_computed",
        "num_hashed",
        "num_placeholders",
        "num_planned",
        "num_preemptions",
        "num_prompt",
        "num_scored",
        "order",
        "params",
        "planned_step",
        "priority",
        "request_id",
        "salt",
        "seed",
        "status",
        "stop_id",
        "stop_ids",
        "tables",
        "tokens",
    )

    def __init__(
        self,
        request_id: str,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        eos_ids: Iterable[int] = (),
        priority: int = 0,
        arrival_s: float | None = None,
        salt: bytes = b"",
        lora: str | None = None,
        hash_root: bytes = b"",
        hash_parts: dict[int, bytes] | None = None,
        seed: int | None = None,
        choice: int = 0,
        mask: object = None,
    ) -> None:
        self.request_id = request_id
        self.choice = choice
        self.params = params
        self.num_prompt = len(prompt)
        self.eos_ids = frozenset(eos_ids)
        self.priority = priority
        self.arrival_s = arrival_s
        self.salt = salt
        self.lora = lora
        self.hash_root = hash_root
        self.hash_parts = hash_parts or {}
        drawn = params.seed if seed is None else seed
        self.seed: int = int.from_bytes(os.urandom(8), "little") if drawn is None else drawn & (2**64 - 1)
        self.mask = mask

        stops = frozenset(params.stop_token_ids)
        self.stop_ids: frozenset[int] = stops if params.ignore_eos else stops | self.eos_ids
        self.min_len = self.num_prompt + params.min_tokens
        # Total length at which generation ends; the scheduler lowers it to what the model and the pool can hold.
        self.max_len = self.num_prompt + (params.max_tokens if params.max_tokens is not None else 1 << 40)

        self.status = Status.WAITING
        self.finish_reason: FinishReason | None = None
        self.stop_id: int | None = None
        self.order: tuple[float, ...] = ()
        self.tokens: list[int] = list(prompt)
        self.num_placeholders = 0
        self.num_cached = 0
        self.num_preemptions = 0
        self.num_scored = 0
        self.is_admitted = False
        self.drafts: tuple[int, ...] = ()
        self.leader: Request | None = None
        self.followers: list[Request] = []
        self.planned_step = -1
        # Block keys of tokens[:len(block_keys) * block_tokens]; kept across preemption since tokens are append-only.
        self.block_keys: list[bytes] = []
        # False when a step of one token may still need the general path: prompt scores, or nothing to sample.
        self.is_plain = params.prompt_logprobs is None and params.max_tokens != 0

        self.epoch = -1
        self.tables: list[BlockTable] = []
        self.cursor: PrefixNode | None = None
        self.reset_kv()

    def reset_kv(self) -> None:
        """Forget all KV: counts to zero, empty tables, next epoch. The blocks must have been given back before."""
        self.epoch += 1
        self.num_computed = 0
        self.num_planned = 0
        self.num_hashed = 0
        self.capacity = 0
        self.event_at = 0
        self.hash_at = 0
        self.tables = []
        self.cursor = None

    def fork(self, choice: int) -> Request:
        """The same request as another choice; it waits for this one's prompt so that the prompt is computed once.
        `mask` is passed on as it is; who needs one per choice sets it on the choices that `Scheduler.add` returns."""
        child = Request(
            self.request_id,
            self.tokens[: self.num_prompt],
            self.params,
            eos_ids=self.eos_ids,
            priority=self.priority,
            arrival_s=self.arrival_s,
            salt=self.salt,
            lora=self.lora,
            hash_root=self.hash_root,
            hash_parts=self.hash_parts,
            seed=self.seed,
            choice=choice,
            mask=self.mask,
        )
        child.leader = self
        self.followers.append(child)
        return child

    @property
    def num_output(self) -> int:
        """Output tokens accepted so far."""
        return len(self.tokens) - self.num_prompt

    @property
    def output_ids(self) -> list[int]:
        """Output token ids accepted so far (a copy)."""
        return self.tokens[self.num_prompt :]

    @property
    def is_scoring(self) -> bool:
        """Scores of prompt tokens are asked for, and some are still to come."""
        return self.params.prompt_logprobs is not None and self.num_scored < self.num_prompt

    @property
    def is_finished(self) -> bool:
        return self.status is Status.FINISHED

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id!r}, choice={self.choice}, {self.status.value}, "
            f"prompt={self.num_prompt}, output={self.num_output}, computed={self.num_computed})"
        )
