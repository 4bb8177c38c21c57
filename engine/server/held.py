"""What the server holds of inputs that have no result yet: admission by tokens and by bytes, and when to come back.

A call counts at most half of what may be held, so that one long list leaves room for others; what it holds gets less as its
results come. The hint of a 429 is what is held over the pace of the last results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from octavo.engine.errors import OverloadedError

MAX_RETRY_S = 60.0
_MEMORY_S = 5.0  # of the pace: older results count less and less


class Held:
    """`tokens` and `num_bytes` are held now. Tokens are guessed from texts' lengths until they are known."""

    def __init__(self, max_tokens: int, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_tokens, self.max_bytes = max_tokens, max_bytes
        self.tokens = 0.0
        self.num_bytes = 0
        self._clock = clock
        self._at = clock()
        self._done = 0.0  # tokens of results, fading
        self._since = 0.0  # seconds of work that they took, fading alike

    @contextmanager
    def admitted(self, num_tokens: int, num_bytes: int) -> Iterator[Place]:
        """Room for a call, or an OverloadedError."""
        tokens = min(num_tokens, self.max_tokens / 2)
        size = min(num_bytes, self.max_bytes / 2)
        if self.tokens + tokens > self.max_tokens or self.num_bytes + size > self.max_bytes:
            raise OverloadedError(
                f"inputs of about {self.tokens:.0f} tokens and {self.num_bytes} bytes wait for their results; at most "
                f"{self.max_tokens} tokens (--max-held-tokens) and {self.max_bytes} bytes may; try again later",
                retry_after_s=self.retry_after_s(),
            )
        place = Place(self, tokens, tokens / max(num_tokens, 1))
        if not self.tokens:
            self._at = self._clock()  # idle time is no pace
        self.tokens += tokens
        self.num_bytes += int(size)
        try:
            yield place
        finally:
            place.leave()
            self.num_bytes -= int(size)

    def retry_after_s(self) -> float:
        """Seconds until half of what is held has its results, at the pace of late."""
        if not self._done:
            return 1.0
        return min(MAX_RETRY_S, max(1.0, 0.5 * self.tokens * self._since / self._done))

    def release(self, tokens: float, *, has_results: bool) -> None:
        """So much is held no longer; results set the pace."""
        self.tokens = max(0.0, self.tokens - tokens)
        if has_results:
            now = self._clock()
            passed, self._at = now - self._at, now
            fading = _MEMORY_S / (_MEMORY_S + passed)
            self._done = self._done * fading + tokens
            self._since = self._since * fading + passed


class Place:
    """One call's part of what is held."""

    def __init__(self, held: Held, tokens: float, share: float) -> None:
        self._held, self._tokens, self._share = held, tokens, share

    def done(self, num_tokens: int) -> None:
        """Inputs of so many tokens have their results."""
        part = min(self._tokens, num_tokens * self._share)
        self._tokens -= part
        self._held.release(part, has_results=True)

    def leave(self) -> None:
        """The call is over."""
        self._held.release(self._tokens, has_results=False)
        self._tokens = 0.0
