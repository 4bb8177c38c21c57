"""A scripted engine and a tiny byte-level model's text layer, for tests of the server over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as RustTokenizer

from octavo.engine.errors import EngineDeadError
from octavo.engine.messages import AddRequest, EngineInfo, RequestOutput, TokenLogprobs
from octavo.engine.model_text import ModelText
from octavo.engine.server.engine_api import Engine
from octavo.engine.server.fleet import Fleet, Member
from octavo.engine.server.state import ServerState
from octavo.engine.text.chat_template import ChatTemplate
from octavo.engine.text.token_bytes import byte_alphabet
from octavo.engine.text.tokenizer import Tokenizer

EOS = 1
MAX_MODEL_LEN = 512
PIECES = (b"abc", b"DE", b"F", b"GH", b"tail", b"\xf0\x9f", b"\x8c\xb6", b" ok", b"hello", b" world", b" and")
_LETTERS = {byte: char for char, byte in byte_alphabet().items()}


def make_tokenizer() -> Tokenizer:
    """Ids: 0 <|im_start|>, 1 <|im_end|>, 2..257 the bytes, then PIECES."""
    vocab = {"<|im_start|>": 0, "<|im_end|>": 1}
    for byte in range(256):
        vocab[_LETTERS[byte]] = 2 + byte
    for piece in PIECES:
        vocab.setdefault("".join(_LETTERS[byte] for byte in piece), len(vocab))
    rust = RustTokenizer(models.BPE(vocab=vocab, merges=[]))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return Tokenizer(rust, eos_ids=[EOS])


def fleet_of(state: ServerState) -> Fleet:
    """One model that is attached by hand."""

    async def load() -> tuple[Engine, ModelText]:
        raise AssertionError("nobody loads it")

    return Fleet([Member(state, load)])


def make_text() -> ModelText:
    """The text layer of the tiny model."""
    tokenizer = make_tokenizer()
    return ModelText(tokenizer, ChatTemplate.for_tokenizer(tokenizer, template="chatml"))


def piece_ids(*pieces: bytes) -> list[int]:
    """Ids of PIECES or single bytes."""
    tokenizer = make_tokenizer()
    found = [tokenizer.token_id("".join(_LETTERS[byte] for byte in piece)) for piece in pieces]
    assert None not in found
    return [token for token in found if token is not None]


def fake_logprobs(token: int, num_best: int) -> TokenLogprobs:
    """Token t has logprob -t/100; the best are ids 10, 11, ... with -0.1, -0.2, ..."""
    best = [10 + i for i in range(num_best)]
    return TokenLogprobs(token, -token / 100, 1, best, [-(i + 1) / 10 for i in range(num_best)])


@dataclass
class Script:
    """What the next requests get: steps of tokens, one by one every `step_s`, then `end` (None: whatever max_tokens says)."""

    steps: list[list[int]]
    step_s: float = 0.0
    end: str | None = "stop"
    stop_id: int = EOS
    reject: Exception | None = None
    first_delay_s: float = 0.0
    error: str = ""


def endless(token: int, step_s: float) -> Script:
    """The same token for ever."""
    return Script([[token]], step_s, end=None)


@dataclass
class FakeEngine:
    """Runs scripts, one output per step. `choose` picks a script for a request; the default says hello world."""

    info: EngineInfo = field(
        default_factory=lambda: EngineInfo(
            "tiny", "Tiny", 2 + 256 + len(PIECES), MAX_MODEL_LEN, 64, 32, [EOS], ["f32"], "f32", "fake", [], 1, 0, {}, 1
        )
    )
    script: Script = field(default_factory=lambda: Script([[t] for t in piece_ids(b"hello", b" world")]))
    choose: Callable[[AddRequest], Script] | None = None
    requests: list[AddRequest] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    aborted: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    num_steps: dict[str, int] = field(default_factory=dict)
    drained: list[float] = field(default_factory=list)
    is_alive: bool = True
    num_cached: int = 0
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    async def submit(self, request: AddRequest) -> AsyncIterator[RequestOutput]:
        script = self.choose(request) if self.choose is not None else self.script
        if not self.is_alive:
            raise EngineDeadError("killed by signal 9")
        if script.reject is not None:
            raise script.reject
        self.requests.append(request)
        rid = request.request_id
        self.running.add(rid)
        is_over = False
        try:
            await self._sleep(script.first_delay_s)
            async for out in self._outputs(request, script):
                self.num_steps[rid] = self.num_steps.get(rid, 0) + 1
                is_over = bool(out.finish_reason)
                if is_over:
                    self.running.discard(rid)
                yield out
                if is_over or rid not in self.running:
                    return
        finally:
            if rid in self.running:
                self.running.discard(rid)
                self.aborted.append(rid)

    async def _outputs(self, request: AddRequest, script: Script) -> AsyncIterator[RequestOutput]:
        params, rid = request.params, request.request_id
        limit = params.max_tokens if params.max_tokens is not None else self.info.max_model_len - len(request.prompt)
        prompt_lps = None
        if params.prompt_logprobs is not None:
            best = params.prompt_logprobs
            nothing = TokenLogprobs(request.prompt[0], 0.0, 0, [], [])  # position 0 has none: an empty entry
            prompt_lps = [nothing, *(fake_logprobs(token, best) for token in request.prompt[1:])]
        if limit == 0:
            yield RequestOutput(rid, [], "length", prompt_logprobs=prompt_lps)
            return
        num_made, place = 0, 0
        while True:
            is_last = place == len(script.steps) - 1
            tokens = script.steps[min(place, len(script.steps) - 1)][: limit - num_made]
            num_made += len(tokens)
            reason = ""
            if num_made >= limit:
                reason = "length"
            elif is_last and script.end is not None:
                reason = script.end
            lps = None if params.logprobs is None else [fake_logprobs(token, params.logprobs) for token in tokens]
            yield RequestOutput(
                rid,
                tokens,
                reason,
                stop_id=script.stop_id if reason == "stop" else -1,
                logprobs=lps,
                prompt_logprobs=prompt_lps if place == 0 else None,
                num_cached=self.num_cached,
                error=script.error,
            )
            if reason:
                return
            place += 1
            await self._sleep(script.step_s)

    async def _sleep(self, seconds: float) -> None:
        """A step's time; ends with the engine's death."""
        if seconds:
            try:
                await asyncio.wait_for(self.dead.wait(), seconds)
            except asyncio.TimeoutError:
                return
        else:
            await asyncio.sleep(0)
        if not self.is_alive:
            raise EngineDeadError("killed by signal 9")

    def kill(self) -> None:
        """The engine process dies."""
        self.is_alive = False
        self.dead.set()

    async def finish(self, request_id: str) -> None:
        self.finished.append(request_id)
        self.running.discard(request_id)

    async def abort(self, request_id: str) -> None:
        self.running.discard(request_id)

    async def stats(self) -> dict[str, float]:
        return {
            "num_requests_running": float(len(self.running)),
            "num_requests_waiting": 0.0,
            "kv_cache_usage_perc": 0.25,
            "prefix_cache_queries": 100.0,
            "prefix_cache_hits": 40.0,
            "num_preemptions": 3.0,
        }

    async def drain(self, deadline_s: float) -> None:
        self.drained.append(deadline_s)
        while self.running:
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.kill()
