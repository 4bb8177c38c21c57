"""Steps of an encoder with a tail: from packed token ids to rows of scores or vectors.

Of sequences a step gives one row each. Of tokens it gives the rows that are asked for, some at a time, so that wide ones (a score
per entry of a vocabulary) never lie in memory for a whole step; the layers run once. Invariant: a row depends on its own text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from octavo.engine.models.encoder_spec import NO_PAGES
from octavo.engine.models.text_encoder import TextEncoder
from octavo.engine.pooling.model import HeadedEncoder
from octavo.platforms.ops import Ops
from octavo.platforms.platform import Capacity, Executable, Platform
from octavo.platforms.types import F32, Array

ROWS = 64  # of tokens at a time


class HeadRunner:
    """`max_tokens` and `max_seqs` bound a step; `pooling` "" gives rows of tokens. The program is made when first needed."""

    def __init__(
        self,
        platform: Platform,
        encoder: TextEncoder,
        tail: Callable[[Ops, Array], Array],
        *,
        pooling: str = "",
        max_tokens: int,
        max_seqs: int,
    ) -> None:
        self._platform = platform
        self._encoder = encoder
        self._model = HeadedEncoder(encoder, tail, pooling)
        self._max_tokens = max_tokens
        self._max_seqs = max_seqs
        self._program: Executable | None = None

    def of_sequences(self, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> F32:
        """[texts, width] of one step."""
        program = self._built()
        program.run(self._encoder.batch(texts, types))
        return np.array(program.head(np.arange(len(texts), dtype=np.int32)))

    def of_tokens(
        self,
        texts: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None = None,
        unseen: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, F32]]:
        """(text, [some of its tokens, width]) of one step, in order; an array is valid until the next one is asked for. `unseen`:
        tokens at the end of each text that the others do not see."""
        program = self._built()
        program.run(self._encoder.batch(texts, types, unseen))
        first = 0
        for place, ids in enumerate(texts):
            end = first + len(ids)
            for start in range(first, end, ROWS):
                yield place, program.head(np.arange(start, min(start + ROWS, end), dtype=np.int32))
            first = end

    def close(self) -> None:
        """Lets go of the program."""
        if self._program is not None:
            self._program.close()
            self._program = None

    def _built(self) -> Executable:
        if self._program is None:
            self._program = self._platform.build(self._model, NO_PAGES, self._capacity())
        return self._program

    def _capacity(self) -> Capacity:
        spec = self._encoder.spec
        num_rows = self._max_seqs if self._model.pooling else ROWS
        return Capacity(self._max_tokens, self._max_seqs, num_rows, spec.max_positions + spec.position_offset, 1)

    def scratch_bytes(self) -> int:
        """Of the work area of a step."""
        return self._platform.scratch_bytes(self._model, NO_PAGES, self._capacity())
