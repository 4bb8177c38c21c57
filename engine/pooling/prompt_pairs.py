"""From pairs of texts to what a generator is asked about them: by a chat template with roles, or as a model card does.

Invariants: those of `pairs`. What a caller wrote spells no control token. A pair that is too long loses the end of what was put
together, in front of the question's own last tokens, which answer for it: the document's end, whichever truncation was asked for;
a query that leaves a document no room is an error. A call's prompt is the instruction; without one the model's default counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import ModelError, RequestError
from octavo.engine.pooling.pairs import Pairs, PairTruncation, check_truncation, leaves_no_room, too_long, wrong
from octavo.engine.pooling.texts import Item, Rules
from octavo.engine.text.spans import Span, Trust
from octavo.engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from octavo.engine.model_text import ModelText

QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_QWEN3_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: '
)
_QWEN3_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
GEMMA_PROMPT = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a prediction of "
    "either 'Yes' or 'No'."
)
_CHARS_PER_TOKEN = 8  # about as many as texts have at most; where one has more, it is tokenized further
_SLACK = 64
_FILLERS = ("a", "7 z")  # what questions about them have in common is the question's own
Ask = Callable[[str, str, str], Sequence[Span]]


def qwen3_question(instruction: str, query: str, document: str) -> list[Span]:
    """As the model card of Qwen3-Reranker has it."""
    parts = (
        _QWEN3_BEFORE,
        instruction or QWEN3_INSTRUCTION,
        "\n<Query>: ",
        query,
        "\n<Document>: ",
        document,
        _QWEN3_AFTER,
    )
    return [(part, Trust.USER if place % 2 else Trust.TEMPLATE) for place, part in enumerate(parts)]


class QuestionPairs:
    """Pairs in a text that `ask` makes of instruction, query and document. `items` is that of `Pairs`."""

    takes_instruction = True

    def __init__(self, tokenizer: Tokenizer, rules: Rules, ask: Ask) -> None:
        self.tokenizer = tokenizer
        self.rules = rules
        self._ask = ask
        self._tails: dict[str, int] = {}

    def items(
        self, pairs: Iterable[object], prompt: str, truncate: PairTruncation, *, max_second: int | None = None
    ) -> list[Item]:
        """Tokens of every pair, or why it has none."""
        check_truncation(truncate)
        firsts: dict[str, tuple[int, int]] = {}
        found = []
        for pair in pairs:
            error = wrong(pair)
            if error:
                found.append(Item([], error=error))
                continue
            assert isinstance(pair, (tuple, list))
            try:
                found.append(self._item(prompt, pair[0], pair[1], firsts, truncate, max_second))
            except RequestError as refusal:  # of a template
                found.append(Item([], error=str(refusal)))
        return found

    def _item(
        self,
        prompt: str,
        first: str,
        second: str,
        firsts: dict[str, tuple[int, int]],
        truncate: PairTruncation,
        max_second: int | None,
    ) -> Item:
        limit = self.rules.max_tokens
        if first not in firsts:
            some, others = (self._ids(prompt, first, text, first) for text in _FILLERS)
            firsts[first] = len(some), _common(some, others)
        num_alone, start = firsts[first]
        if num_alone > limit:
            return Item([], error=leaves_no_room(num_alone, limit), code="context_length_exceeded")
        ids, keeps = self._ids(prompt, first, second, second), self._tail(prompt)
        truncated_from = 0
        if max_second is not None and len(ids) - start - keeps > max_second:
            truncated_from = len(ids)
            ids = ids[: start + max_second] + ids[len(ids) - keeps :]
        if len(ids) > limit:
            if truncate == "error":
                return Item([], error=too_long(len(ids), limit), code="context_length_exceeded")
            truncated_from = max(truncated_from, len(ids))
            ids = ids[: limit - keeps] + ids[len(ids) - keeps :]
        return Item(ids, 0, truncated_from)

    def _ids(self, prompt: str, first: str, second: str, long: str) -> list[int]:
        """Tokens of a question; of one that is far too long for `long`, one of its texts, so many that this shows."""
        most = self.rules.max_tokens + _SLACK
        num_chars = most * _CHARS_PER_TOKEN
        while num_chars < len(long):
            cut = (long[:num_chars], second) if long is first else (first, long[:num_chars])
            ids = self._whole(prompt, *cut)
            if len(ids) > most:
                return ids
            num_chars *= 4
        return self._whole(prompt, first, second)

    def _whole(self, prompt: str, first: str, second: str) -> list[int]:
        if self.rules.lowers_case:
            first, second = first.lower(), second.lower()
        return self.tokenizer.encode_spans(self._ask(prompt, first, second), ensure_bos=False)

    def _tail(self, prompt: str) -> int:
        """How many tokens at the end are the question's own."""
        if prompt not in self._tails:
            some, others = (self._whole(prompt, text, text) for text in _FILLERS)
            self._tails[prompt] = _common(some[::-1], others[::-1])
            if self._tails[prompt] >= self.rules.max_tokens:
                raise ModelError(f"questions of {self.rules.max_tokens} tokens have no room for texts")
        return self._tails[prompt]


class GemmaPairs:
    """Pairs as FlagEmbedding asks bge-reranker-v2-gemma: BOS, `A: query`, `B: document` and the prompt, each on a line and
    tokenized by itself."""

    takes_instruction = True

    def __init__(self, tokenizer: Tokenizer, rules: Rules) -> None:
        self.tokenizer = tokenizer
        self.rules = rules
        self._label = len(tokenizer.encode("B:", add_special=False))
        self._by_prompt: dict[str, Pairs] = {}

    def items(
        self, pairs: Iterable[object], prompt: str, truncate: PairTruncation, *, max_second: int | None = None
    ) -> list[Item]:
        """Tokens of every pair, or why it has none."""
        sides = [pair if wrong(pair) else (f"A: {pair[0]}", f"B: {pair[1]}") for pair in pairs]  # type: ignore[index]
        most = None if max_second is None else max_second + self._label
        return self._pairs(prompt or GEMMA_PROMPT).items(sides, "", truncate, max_second=most)

    def _pairs(self, prompt: str) -> Pairs:
        if prompt not in self._by_prompt:
            tokenizer = self.tokenizer
            line = tokenizer.encode("\n", add_special=False)
            has_bos = tokenizer.bos_id is not None and tokenizer.bos_id != tokenizer.pad_id
            special = [
                [tokenizer.bos_id] if has_bos and tokenizer.bos_id is not None else [],
                line,
                line + tokenizer.encode(prompt, add_special=False),
            ]
            if len(self._by_prompt) > 64:
                self._by_prompt.clear()
            self._by_prompt[prompt] = Pairs(tokenizer, self.rules, has_segments=False, special=special)
        return self._by_prompt[prompt]


PairTexts = Pairs | QuestionPairs | GemmaPairs


def pairs_of(
    style: str, text: ModelText, rules: Rules, *, has_segments: bool = True, options: Mapping[str, Any] | None = None
) -> PairTexts:
    """The text side of a model's pairs; `style` and `options` are those of `questions.Question`. ModelError where there is
    no room."""
    tokenizer = text.tokenizer
    if style == "qwen3":
        return QuestionPairs(tokenizer, rules, qwen3_question)
    if style == "bge-gemma":
        return GemmaPairs(tokenizer, rules)
    if style == "template":
        return QuestionPairs(tokenizer, rules, _asker(text, dict(options or {})))
    return Pairs(tokenizer, rules, has_segments=has_segments)


def refuse_instruction(pairs: PairTexts, prompt: str | None) -> None:
    """RequestError for an instruction that the model has no place for, or beside a prompt, which is one."""
    if not pairs.takes_instruction:
        raise RequestError(
            "this model reads a query and a document and takes no instruction; leave it out, or put it before the query (prompt)",
            param="instruction",
        )
    if prompt is not None:
        raise RequestError(
            "instruction and a prompt were both given, and a prompt is one; give one", param="instruction"
        )


def _asker(text: ModelText, options: dict[str, Any]) -> Ask:
    """Questions by the tokenizer's chat template, as sentence-transformers fills it."""
    template = text.template
    if template is None:
        raise ModelError("the tokenizer has no chat template, which is to ask about pairs")
    generates = bool(options.pop("add_generation_prompt", False))

    def ask(prompt: str, query: str, document: str) -> Sequence[Span]:
        messages = [{"role": "query", "content": query}, {"role": "document", "content": document}]
        if prompt:
            messages.insert(0, {"role": "system", "content": prompt})
        return template.render(messages, add_generation_prompt=generates, kwargs=options)

    return ask


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    """How many entries both begin with."""
    return next((i for i, (a, b) in enumerate(zip(some, others, strict=False)) if a != b), min(len(some), len(others)))
