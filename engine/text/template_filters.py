"""Filters and functions of chat templates, with marks kept (marked.py) and sizes checked (template_budget.py).

`tojson`, `raise_exception` and `strftime_now` behave as model hubs define them (JSON without HTML escapes, non-ASCII
kept).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from string import Formatter
from typing import Any

from octavo.engine.text.marked import Marked, concat, format_percent, join_marked, marks_of, remark, worst_mark
from octavo.engine.text.spans import Trust
from octavo.engine.text.template_budget import current_budget

_WIDTH = re.compile(r"%[-_0^#]*\d")
_MAX_JSON_INDENT = 16


class TemplateRefusal(Exception):
    """A template said `raise_exception(...)`: its own words for the caller."""


# Filters that hand on items as they are: marking their plain results would distrust a template's own literals.
CHOOSING = frozenset(
    {
        "default",
        "d",
        "first",
        "last",
        "list",
        "items",
        "dictsort",
        "sort",
        "reverse",
        "unique",
        "min",
        "max",
        "attr",
        "map",
    }
    | {"select", "reject", "selectattr", "rejectattr", "groupby", "batch", "slice", "sum", "length", "count"}
)


def raise_exception(message: Any) -> None:
    raise TemplateRefusal(str(message))


def strftime_now(format: str) -> str:
    current_budget().check_format(format, ())
    if _WIDTH.search(format):
        raise TypeError("strftime_now takes no field widths")
    return datetime.now().strftime(format)


def new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def text_of(value: Any) -> str:
    """The printed form. Of a container or any other object it is marked as the least trusted text inside may be."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    current_budget().check_text(value)
    text = str(value)
    if isinstance(value, (list, tuple, dict)):
        return remark(text, (value,))  # type: ignore[no-any-return]
    return Marked(text, int(Trust.USER)) if text else text


def _trim(value: Any, chars: str | None = None) -> str:
    return text_of(value).strip(chars)


def _replace(value: Any, old: str, new: str, count: int | None = None) -> str:
    text = value if isinstance(value, Marked) else Marked(text_of(value), 0)
    result = text.replace(text_of(old), text_of(new), -1 if count is None else count)
    return result


def _escape(value: Any) -> str:
    return html.escape(unmarked(text_of(value)))


def _string(value: Any) -> str:
    return text_of(value)


def _method(name: str) -> Callable[[Any], str]:
    def apply(value: Any) -> str:
        result: str = getattr(text_of(value), name)()
        return result

    return apply


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    pad = width if isinstance(width, str) else " " * width
    lines = text_of(value).split("\n")
    padded = [line if (not first and place == 0) or (not line and not blank) else pad + line
              for place, line in enumerate(lines)]  # fmt: skip
    return join_strings("\n", padded)


def _join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    items = value
    if attribute is not None:
        items = [item[attribute] for item in value]
    return join_strings(d, items)


def join_strings(separator: str, items: Iterable[Any]) -> str:
    texts = _texts(items, len(separator))
    if type(separator) is Marked or any(type(text) is Marked for text in texts):
        return join_marked(separator, texts)
    return separator.join(texts)


def _texts(items: Iterable[Any], num_between: int) -> list[str]:
    budget = current_budget()
    texts, num_chars = [], 0
    for item in budget.each(items):
        texts.append(text_of(item))
        num_chars += len(texts[-1]) + num_between
        budget.check_chars(num_chars)
    return texts


def join_pieces(pieces: list[Any]) -> str:
    return concat(_texts(pieces, 0))


def _sum(values: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    total = start
    for value in current_budget().each(values):
        item = value if attribute is None else value[attribute]
        if not isinstance(item, (int, float)) or not isinstance(total, (int, float)):
            raise TypeError("sum adds numbers only")
        total = total + item
    return total


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    if isinstance(indent, int) and not 0 <= indent <= _MAX_JSON_INDENT:
        raise ValueError(f"tojson takes an indent of 0 to {_MAX_JSON_INDENT}")
    if indent is not None and not isinstance(indent, int):
        raise ValueError("tojson takes a number as indent")
    current_budget().check_text(value)
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return remark(text, (value,))  # type: ignore[no-any-return]


def _format(value: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TypeError("the format filter takes positional or named values, not both")
    current_budget().check_format(value, args or tuple(kwargs.values()))
    return format_percent(value, kwargs or args)


def unmarked(text: str) -> str:
    return str.__getitem__(text, slice(None))


def mark_format(template: str, args: tuple[Any, ...], kwargs: dict[str, Any], plain: str) -> str:
    """`plain`, the result of `template.format(...)`, with marks. Only the simple forms `{}`, `{0}` and `{name}` tell
    the template's text from the values'; any other takes the worst mark for all."""
    level = worst_mark((template, *args, *kwargs.values()))
    if not level:
        return plain
    pieces: list[str] = []
    number = 0
    for literal, name, spec, conversion in Formatter().parse(unmarked(template)):
        pieces.append(Marked(literal, max(marks_of(template), default=0)))
        if name is None:
            continue
        if spec or conversion or "." in name or "[" in name:
            return Marked(plain, level)
        if name == "":
            name, number = str(number), number + 1
        pieces.append(text_of(args[int(name)] if name.isdigit() else kwargs[name]))
    result = concat(pieces)
    return result if result == plain else Marked(plain, level)


FILTERS: dict[str, Callable[..., Any]] = {
    "trim": _trim,
    "replace": _replace,
    "join": _join,
    "tojson": _tojson,
    "string": _string,
    "safe": _string,
    "format": _format,
    "indent": _indent,
    "sum": _sum,
    "e": _escape,
    "escape": _escape,
    "forceescape": _escape,
    **{name: _method(name) for name in ("upper", "lower", "title", "capitalize")},
}
