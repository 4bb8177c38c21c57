"""Text with its origin: which parts of a prompt the template wrote and which parts came from outside.

`Trust` says whose text a character is. Control tokens are recognised in TEMPLATE text alone; MODEL text (earlier
answers sent back as history) may spell a model's plain markup, such as a thinking tag, but no control token; USER text
may spell neither. Joining takes the least trusted of both where one character depends on both.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Trust(IntEnum):
    """Whose text it is, most trusted first."""

    TEMPLATE = 0
    MODEL = 1
    USER = 2


Span = tuple[str, Trust]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Neighbours of equal trust joined, empty ones dropped; the text is unchanged."""
    merged: list[tuple[list[str], Trust]] = []
    for text, trust in spans:
        if not text:
            continue
        if merged and merged[-1][1] == trust:
            merged[-1][0].append(text)
        else:
            merged.append(([text], trust))
    return [("".join(parts), trust) for parts, trust in merged]


def spans_text(spans: Iterable[Span]) -> str:
    """The plain text of the spans."""
    return "".join(text for text, _ in spans)
