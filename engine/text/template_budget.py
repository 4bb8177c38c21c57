"""What one rendering of a chat template may cost, and the checks before costly string operations.

Steps are loop iterations and calls; sizes are characters (or list items). Everything that could make a large result at
once is predicted before it runs, so memory never exceeds the limit; everything that repeats counts steps, so time is
bounded too. No import of the template library: this file is its accountant only.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from octavo.engine.errors import RequestError

_CLOCK_EVERY = 256  # steps between looks at the clock
_MAX_INT_BITS = 4096
_DIGITS = re.compile(r"\d+")
_WIDENING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "indent", "wordwrap", "truncate", "lipsum"})


_state = threading.local()


@dataclass(frozen=True)
class TemplateLimits:
    """Limits of one rendering."""

    max_steps: int = 1_000_000
    max_chars: int = 8_000_000  # any one string, the output included
    max_items: int = 1_000_000  # any one list
    max_seconds: float = 2.0


class TemplateBudgetError(RequestError):
    """A rendering went over a limit."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the chat template {message}", param="messages", code="template_budget")


class Budget:
    """The account of one rendering."""

    def __init__(self, limits: TemplateLimits) -> None:
        self.limits = limits
        self.num_steps = 0
        self._deadline = time.monotonic() + limits.max_seconds

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Make this the current budget of the thread."""
        outer = getattr(_state, "budget", None)
        _state.budget = self
        try:
            yield
        finally:
            _state.budget = outer

    def step(self, count: int = 1) -> None:
        """Count work; looks at the clock now and then."""
        before = self.num_steps
        self.num_steps += count
        if self.num_steps > self.limits.max_steps:
            raise TemplateBudgetError(
                f"ran over {self.limits.max_steps} steps; shorten the conversation or fix its loops"
            )
        if before // _CLOCK_EVERY != self.num_steps // _CLOCK_EVERY and time.monotonic() > self._deadline:
            raise TemplateBudgetError(
                f"ran over {self.limits.max_seconds} s; shorten the conversation or fix its loops"
            )

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """The items, one step each."""
        for item in items:
            self.step()
            yield item

    def check_chars(self, count: int) -> None:
        """Refuse a string of this many characters."""
        if count > self.limits.max_chars:
            raise TemplateBudgetError(
                f"would make a string of {count} characters; at most {self.limits.max_chars} are allowed"
            )

    def check_items(self, count: int) -> None:
        """Refuse a list of this many items."""
        if count > self.limits.max_items:
            raise TemplateBudgetError(
                f"would make a list of {count} items; at most {self.limits.max_items} are allowed"
            )

    def check_text(self, value: Any) -> None:
        """Refuse data whose printed form would be too long; shared parts count each time they would be printed."""
        stack, total = [value], 0
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                total += len(item) + 2
            elif isinstance(item, Mapping):
                self.step()
                stack += item.keys()
                stack += item.values()
                total += 8 + 4 * len(item)
            elif isinstance(item, (list, tuple, set)):
                self.step()
                stack += item
                total += 8 + 2 * len(item)
            else:
                total += 4
            if total + len(stack) > self.limits.max_chars:
                self.check_chars(total + len(stack))

    def check_result(self, value: Any) -> None:
        """Refuse an oversized result of any operation."""
        if isinstance(value, str):
            self.check_chars(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self.check_items(len(value))

    def check_binary(self, operator: str, left: Any, right: Any) -> None:
        """Before `left operator right`."""
        self.step()
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(value, (str, bytes)):
                    self.check_chars(len(value) * times)
                elif isinstance(times, int) and isinstance(value, (list, tuple)):
                    self.check_items(len(value) * times)
            if isinstance(left, int) and isinstance(right, int):
                self._check_bits(left.bit_length() + right.bit_length())
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            self._check_bits(left.bit_length() * max(right, 1))
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            self.check_chars(len(left) + len(right))
        elif operator == "+" and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            self.check_items(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            self.check_format(left, right if isinstance(right, tuple) else (right,))

    def _check_bits(self, count: int) -> None:
        if count > _MAX_INT_BITS:
            raise TemplateBudgetError(f"would make a number of {count} bits; at most {_MAX_INT_BITS} are allowed")

    def check_format(self, template: str, values: Sequence[Any]) -> None:
        """Before a format: widths in the template itself, and numbers that could be taken as widths."""
        self.check_text((template, *values))
        for digits in _DIGITS.findall(template):
            self.check_chars(int(digits[:12]))
        if "*" in template or "{" in template.partition("{")[2]:
            for value in values:
                if isinstance(value, int):
                    self.check_chars(abs(value))

    def check_call(self, name: str, owner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Before a method or filter `name` of the string or list `owner`."""
        self.step()
        values = [*args, *kwargs.values()]
        if name in ("format", "format_map"):
            inner = [v for value in values for v in (value.values() if isinstance(value, Mapping) else (value,))]
            if isinstance(owner, str):
                self.check_format(owner, inner)
            return
        if name in _WIDENING:
            lines = 1 + (owner.count("\n") + owner.count("\t") if isinstance(owner, str) else 0)
            for value in values:
                if isinstance(value, int):
                    self.check_chars(abs(value) * lines)
                elif isinstance(value, str):
                    self.check_chars(len(value) * lines)
        elif name == "replace" and isinstance(owner, str) and len(values) >= 2 and isinstance(values[0], str):
            times = owner.count(values[0])
            self.check_chars(len(owner) + times * max(0, len(str(values[1])) - len(values[0])))
        elif name == "join":
            self._check_join(owner, values)
        elif name in ("batch", "slice", "round", "filesizeformat", "tojson"):
            for value in values:
                if isinstance(value, int):
                    self.check_items(abs(value))

    def _check_join(self, owner: Any, values: Sequence[Any]) -> None:
        # The method's owner is the separator; the filter's owner is the list.
        separator, items = (
            (owner, values[0] if values else ()) if isinstance(owner, str) else (values[0] if values else "", owner)
        )
        if isinstance(items, (list, tuple)):
            inner = sum(len(item) if isinstance(item, str) else 8 for item in items)
            self.check_chars(inner + len(items) * (len(separator) if isinstance(separator, str) else 0))


def current_budget() -> Budget:
    """The budget of the rendering in this thread (a fresh one while a template is being compiled)."""
    budget = getattr(_state, "budget", None)
    return budget if isinstance(budget, Budget) else Budget(TemplateLimits())
