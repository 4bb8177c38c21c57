"""Strings that remember whose text each character is, through everything a template does to them.

`Marked` is a `str` with one trust level per character (`marks`, bytes, one per character; see spans.Trust). Templates
see ordinary strings: comparisons, tests, JSON and length work on the text. Operations that keep characters keep their
marks exactly (joining, slicing, strip, split, replace, case, formatting); whatever other call yields text from marked
arguments is marked entirely with the least trusted level among them (`remark`). So text from outside can lose trust by
mistake, never gain it: only a template's own literals are TEMPLATE text.

Why marks and not stand-in characters: substitutes inside user text change what a template sees (`in`, `startswith`,
`split`, slices, lengths, JSON escapes) and miss spellings that a template builds from parts; brackets around user text
break `strip` and are cut apart by `split` and slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from octavo.engine.text.spans import Span, Trust

_FORMAT = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d+))?[hlL]?(?P<kind>.)"
)


class Marked(str):
    """Text with marks. `marks[i]` is the `Trust` of character i."""

    marks: bytes
    __slots__ = ("marks",)

    def __new__(cls, text: str, marks: bytes | int) -> Marked:
        """`marks`: one byte per character, or one level for all."""
        self = super().__new__(cls, text)
        self.marks = bytes([marks]) * len(self) if isinstance(marks, int) else marks
        return self

    def spans(self) -> Iterator[Span]:
        """Maximal runs of one trust level."""
        start, marks = 0, self.marks
        text = str.__str__(self)
        while start < len(marks):
            level = marks[start]
            end = len(marks) - len(marks[start:].lstrip(marks[start : start + 1]))
            yield str.__getitem__(text, slice(start, end)), Trust(level)
            start = end

    def _part(self, start: int, end: int) -> Marked:
        return Marked(str.__getitem__(self, slice(start, end)), self.marks[start:end])

    def __str__(self) -> str:
        return self

    def __reduce__(self) -> Any:
        return Marked, (str.__getitem__(self, slice(None)), self.marks)

    def __getitem__(self, key: Any) -> Marked:
        marks = self.marks[key]
        return Marked(str.__getitem__(self, key), bytes([marks]) if isinstance(marks, int) else marks)

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))

    def __add__(self, other: Any) -> Marked:
        if not isinstance(other, str):
            return NotImplemented
        return Marked(str.__add__(self, other), self.marks + marks_of(other))

    def __radd__(self, other: Any) -> Marked:
        if not isinstance(other, str):
            return NotImplemented
        return Marked(str.__add__(other, self), marks_of(other) + self.marks)

    def __mul__(self, times: Any) -> Marked:
        return Marked(str.__mul__(self, times), self.marks * times)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return format_percent(self, values)

    def __rmod__(self, template: Any) -> str:
        return format_percent(template, self)

    def lstrip(self, chars: str | None = None) -> Marked:
        kept = len(str.lstrip(self, chars))
        return self._part(len(self) - kept, len(self))

    def rstrip(self, chars: str | None = None) -> Marked:
        return self._part(0, len(str.rstrip(self, chars)))

    def strip(self, chars: str | None = None) -> Marked:
        return self.lstrip(chars).rstrip(chars)

    def removeprefix(self, prefix: str) -> Marked:
        return self._part(len(prefix), len(self)) if prefix and self.startswith(prefix) else self

    def removesuffix(self, suffix: str) -> Marked:
        return self._part(0, len(self) - len(suffix)) if suffix and self.endswith(suffix) else self

    def _locate(self, parts: list[str]) -> list[Any]:
        """The marked twins of consecutive parts of this text, in order, with anything between them."""
        found, place = [], 0
        for part in parts:
            start = str.index(self, part, place)
            found.append(self._part(start, start + len(part)))
            place = start + len(part)
        return found

    def _fields(self, parts: list[str], separator: str) -> list[Any]:
        """The marked twins of parts that one separator divides; `parts` may begin or end with empty ones."""
        found, place = [], 0
        for part in parts:
            found.append(self._part(place, place + len(part)))
            place += len(part) + len(separator)
        return found

    def split(self, sep: str | None = None, maxsplit: Any = -1) -> list[Any]:
        parts = str.split(self, sep, maxsplit)
        return self._locate(parts) if sep is None else self._fields(parts, sep)

    def rsplit(self, sep: str | None = None, maxsplit: Any = -1) -> list[Any]:
        parts = str.rsplit(self, sep, maxsplit)
        if sep is not None:
            return self._fields(parts, sep)
        return Marked.__locate_from_right(self, parts)

    def __locate_from_right(self, parts: list[str]) -> list[Any]:
        found, place = [], len(self)
        for part in reversed(parts):
            start = str.rindex(self, part, 0, place)
            found.append(self._part(start, start + len(part)))
            place = start
        return found[::-1]

    def splitlines(self, keepends: bool = False) -> list[Any]:
        parts = str.splitlines(self, True)
        found = self._fields(parts, "")
        return found if keepends else [line._part(0, len(str.splitlines(line)[0])) for line in found]

    def partition(self, sep: str) -> tuple[Any, Any, Any]:
        first, middle, _ = str.partition(self, sep)
        a, b = len(first), len(first) + len(middle)
        return self._part(0, a), self._part(a, b), self._part(b, len(self))

    def rpartition(self, sep: str) -> tuple[Any, Any, Any]:
        first, middle, _ = str.rpartition(self, sep)
        a, b = len(first), len(first) + len(middle)
        return self._part(0, a), self._part(a, b), self._part(b, len(self))

    def replace(self, old: str, new: str, count: Any = -1) -> Marked:
        if not old:
            return Marked(str.replace(self, old, new, count), worst_mark((self, new)))
        return join_marked(new, self._fields(str.split(self, old, count), old))

    def join(self, parts: Iterable[str]) -> Marked:
        return join_marked(self, parts)

    def _same_length(self, text: str) -> Marked:
        return Marked(text, self.marks if len(text) == len(self) else worst_mark((self,)))

    def lower(self) -> Marked:
        return self._same_length(str.lower(self))

    def upper(self) -> Marked:
        return self._same_length(str.upper(self))

    def title(self) -> Marked:
        return self._same_length(str.title(self))

    def capitalize(self) -> Marked:
        return self._same_length(str.capitalize(self))


def marks_of(text: str) -> bytes:
    """One level per character; plain strings are a template's own."""
    return text.marks if isinstance(text, Marked) else bytes(len(text))


def join_marked(separator: str, parts: Iterable[Any]) -> Marked:
    """`separator.join(parts)`, marks kept."""
    texts = [part if isinstance(part, str) else str(part) for part in parts]
    return Marked(str.join(separator, texts), marks_of(separator).join(map(marks_of, texts)))


def concat(parts: Iterable[Any]) -> str:
    """Join pieces of template output: plain if all are."""
    texts = list(parts)
    if any(type(text) is Marked for text in texts):
        return join_marked("", texts)
    return "".join(texts)


def worst_mark(values: Iterable[Any], depth: int = 6) -> int:
    """The least trusted level anywhere in these values (containers included; too deep counts as USER)."""
    worst = 0
    for value in values:
        if isinstance(value, Marked):
            worst = max(worst, max(value.marks, default=0))
        elif isinstance(value, (str, int, float, bool, type(None))):
            continue
        elif isinstance(value, (Mapping, list, tuple, set)):
            if depth == 0:
                return int(Trust.USER)
            inner = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
            worst = max(worst, worst_mark(inner, depth - 1))
        if worst == Trust.USER:
            break
    return worst


def remark(result: Any, sources: Iterable[Any]) -> Any:
    """Mark text that a call made out of `sources` and returned plain; containers of plain text too."""
    if isinstance(result, Marked) or not isinstance(result, (str, list, tuple)) or not result:
        return result
    level = worst_mark(sources)
    return _mark_all(result, level) if level else result


def _mark_all(value: Any, level: int) -> Any:
    if isinstance(value, Marked):
        return value
    if isinstance(value, str):
        return Marked(value, level)
    if type(value) is list:
        return [_mark_all(item, level) for item in value]
    if type(value) is tuple:
        return tuple(_mark_all(item, level) for item in value)
    return value


def mark_tree(value: Any, level: Trust) -> Any:
    """A copy of JSON-like data with every string, keys included, marked."""
    if isinstance(value, str):
        return Marked(value, int(level))
    if isinstance(value, Mapping):
        return {mark_tree(key, level): mark_tree(item, level) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mark_tree(item, level) for item in value]
    return value


def format_percent(template: str, values: Any) -> str:
    """`template % values` with the marks of template and values kept."""
    if not isinstance(values, tuple):
        values = (values,) if not isinstance(values, Mapping) else values
    if not isinstance(template, Marked) and not worst_mark(values.values() if isinstance(values, Mapping) else values):
        return str.__mod__(template, values)
    rest = iter(values) if isinstance(values, tuple) else iter(())
    pieces: list[str] = []
    done = 0
    for match in _FORMAT.finditer(template):
        pieces.append(template[done : match.start()])
        done = match.end()
        if match["kind"] == "%":
            pieces.append("%")
            continue
        if match["width"] == "*" or match["precision"] == "*":
            raise TypeError("a width or precision of * is not supported in templates")
        value = values[match["key"]] if match["key"] is not None else next(rest, None)
        text = str.__mod__("%" + match[0][1:].replace(f"({match['key']})", "", 1), (value,))
        marked: str = value if isinstance(value, Marked) and text == value else remark(text, (value,))
        pieces.append(marked)
    pieces.append(template[done:])
    return concat(pieces)
