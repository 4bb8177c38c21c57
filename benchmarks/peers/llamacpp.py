"""llama.cpp through llama-cpp-python's low-level calls. Runs under the Python that has it; commands: see protocol.py.

Requests are sequences of one context and go through `llama_decode` together. A prefix that all prompts share is computed once
and copied to the other sequences (`llama_memory_seq_cp`), in a unified cache; without one each sequence has its own stream.
A library's user has to write this; llama-server computes a shared prefix once for each of its slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from protocol import TEXT, Steps, serve, shared_prefix

BATCH = 2048
LEAST_SHARED = 32  # tokens worth sharing


class Engine:
    """A model, and a context for the shape of the last command."""

    peer = "llama.cpp"

    def __init__(self, path: str, threads: int) -> None:
        import llama_cpp as lib

        self.lib, self.threads = lib, threads
        self.version = f"llama-cpp-python {lib.__version__}"
        self._quiet = lib.llama_log_callback(lambda *_: None)
        lib.llama_log_set(self._quiet, None)
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.num_vocab = lib.llama_vocab_n_tokens(self.vocab)
        self.batch = lib.llama_batch_init(BATCH, 0, 1)
        self.context, self.made_for = None, (0, 0, False)

    def first(self) -> str:
        """One token after TEXT."""
        ids = (self.lib.llama_token * 64)()
        text = TEXT.encode()
        count = self.lib.llama_tokenize(self.vocab, text, len(text), ids, 64, True, True)
        self._use(1, count + 1, is_unified=False)
        self._decode([(0, list(ids[:count]), 0)])
        piece = (self.lib.ctypes.c_char * 64)()
        size = self.lib.llama_token_to_piece(self.vocab, self._best(count - 1), piece, 64, 0, True)
        return bytes(piece[:size]).decode(errors="replace")

    def generate(self, prompts: list[list[int]], new: int) -> dict[str, Any]:
        """See protocol.py."""
        shared = shared_prefix(prompts) if len(prompts) > 1 else 0
        shared = shared if shared >= LEAST_SHARED else 0
        longest = max(map(len, prompts)) + new
        self._use(len(prompts), longest, is_unified=shared > 0)
        memory = self.lib.llama_get_memory(self.context)
        steps = Steps(new)
        if shared:
            self._decode([(0, prompts[0][:shared], 0)])
            for i in range(1, len(prompts)):
                self.lib.llama_memory_seq_cp(memory, 0, i, 0, shared)
        tokens = self._decode([(i, prompt[shared:], shared) for i, prompt in enumerate(prompts)])
        counts = [1] * len(prompts)
        steps.mark(counts)
        for done in range(1, new):
            at = [len(prompt) + done - 1 for prompt in prompts]
            tokens = self._decode([(i, [tokens[i]], at[i]) for i in range(len(prompts))])
            counts = [done + 1] * len(prompts)
            steps.mark(counts)
        return steps.answer(counts)

    def logits(self, ids: list[int], file: str) -> None:
        """See protocol.py."""
        self._use(1, len(ids), is_unified=False)
        with open(file, "wb") as out:
            for begin in range(0, len(ids), BATCH):
                piece, batch = ids[begin : begin + BATCH], self.batch
                batch.n_tokens = len(piece)
                for i, token in enumerate(piece):
                    batch.token[i], batch.pos[i], batch.logits[i] = token, begin + i, True
                    batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                if status := self.lib.llama_decode(self.context, batch):
                    raise RuntimeError(f"llama_decode: status {status}")
                for i in range(len(piece)):
                    at = self.lib.llama_get_logits_ith(self.context, i)
                    out.write(np.ctypeslib.as_array(at, shape=(self.num_vocab,)).tobytes())

    def reset(self) -> None:
        """Nothing is kept between commands."""

    def _use(self, requests: int, tokens: int, *, is_unified: bool) -> None:
        room = -(-tokens // 256) * 256
        if self.made_for != (requests, room, is_unified):
            if self.context is not None:
                self.lib.llama_free(self.context)
            params = self.lib.llama_context_default_params()
            params.n_ctx, params.n_batch, params.n_seq_max = room * requests, BATCH, requests
            params.n_threads = params.n_threads_batch = self.threads
            params.kv_unified = is_unified
            params.no_perf = True
            self.context = self.lib.llama_init_from_model(self.model, params)
            if not self.context:
                raise RuntimeError(f"llama.cpp makes no context for {requests} requests of {tokens} tokens")
            self.made_for = (requests, room, is_unified)
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def _decode(self, parts: list[tuple[int, list[int], int]]) -> list[int]:
        """(sequence, ids, position of the first) of each part -> the best next token of each part's last id."""
        rows = [
            (seq, token, start + i, i == len(ids) - 1)
            for seq, ids, start in parts
            for i, token in enumerate(ids)
        ]  # fmt: skip
        best: dict[int, int] = {}
        for begin in range(0, len(rows), BATCH):
            piece = rows[begin : begin + BATCH]
            batch = self.batch
            batch.n_tokens = len(piece)
            for i, (seq, token, position, is_last) in enumerate(piece):
                batch.token[i], batch.pos[i], batch.logits[i] = token, position, is_last
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, seq
            if status := self.lib.llama_decode(self.context, batch):
                raise RuntimeError(f"llama_decode: status {status}")
            best |= {seq: self._best(i) for i, (seq, _, _, is_last) in enumerate(piece) if is_last}
        return [best[seq] for seq, _, _ in parts]

    def _best(self, row: int) -> int:
        at = self.lib.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(at, shape=(self.num_vocab,)).argmax())


if __name__ == "__main__":
    serve(Engine)
