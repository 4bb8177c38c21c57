"""What the API process and the engine process say to each other: msgspec structs, msgpack on a local socket.

API -> engine: AddRequest (of a model that gives tokens) or AddItems (of one that gives vectors), AbortRequest, FinishRequest,
StatsRequest, DrainRequest. Engine -> API: Ready once, then one StepOutputs or ItemOutputs frame per engine step holding every
request that got something, Rejected, Stats, Fatal. Token ids and numbers only: text is made and read in the API process. Every
struct is tagged, versioned by PROTOCOL_VERSION and size-capped.
"""

from __future__ import annotations

import msgspec

from octavo.engine.pooling.outputs import Late, Output
from octavo.engine.sampling_params import SamplingParams

PROTOCOL_VERSION = 3
MAX_FRAME_BYTES = 64 << 20


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """Base of all messages."""


class AddRequest(Message, frozen=True):
    """Run these prompt tokens. `salt` narrows the prefix cache to a tenant; `priority`: lower runs first.

    `choice` distinguishes the n answers of one call (the seed is shared), `leader` is the request id of their first one: the
    others wait until its prompt is computed and share it. `arrival_s` is the API's monotonic clock.
    """

    request_id: str
    prompt: list[int]
    params: SamplingParams
    choice: int = 0
    priority: int = 0
    salt: bytes = b""
    arrival_s: float = 0.0
    leader: str = ""


class ItemOptions(msgspec.Struct, frozen=True, array_like=True):
    """What a task is to do with each of a request's items; hashable, since items of a step share it. `normalize`: vectors of
    length 1 (None: as the model's modules say); `dimensions`: so many first values of a vector (0: all); `activation`: what raw
    scores become, by a name of `octavo.engine.pooling.scores`; `outputs`: what a text becomes, of what the model gives (none:
    all that the task is for)."""

    normalize: bool | None = None
    dimensions: int = 0
    activation: str = "none"
    outputs: tuple[str, ...] = ()


class AddItems(Message, frozen=True):
    """Texts for `task`, each with a result of its own, in any order. Until `is_last`, more of the same request follow.

    `first`: the index of the first one. Of all items, joined: `ids` little-endian int32, `lengths` and `num_prompt` (tokens of
    each that belong to its prompt; empty: none) int32 per item, `segments` uint8 per token (empty: all 0).
    `num_unseen` (empty: none): tokens at the end of each that the others do not see, int32 per item; `marks` (empty: none) uint8
    per token, of `octavo.engine.pooling.late`.
    """

    request_id: str
    task: str
    first: int
    ids: bytes
    lengths: bytes
    num_prompt: bytes = b""
    segments: bytes = b""
    options: ItemOptions = ItemOptions()
    is_last: bool = True
    num_unseen: bytes = b""
    marks: bytes = b""


class AbortRequest(Message, frozen=True):
    """The client is gone: free everything within two steps. Unknown ids are ignored."""

    request_id: str


class FinishRequest(Message, frozen=True):
    """The text layer saw a stop string: end this request as finished, not aborted."""

    request_id: str


class StatsRequest(Message, frozen=True):
    """Ask for one Stats message."""


class DrainRequest(Message, frozen=True):
    """Take no new requests, finish the running ones within `deadline_s`, abort the rest, then exit."""

    deadline_s: float


class PoolingInfo(msgspec.Struct, frozen=True, array_like=True):
    """What the API process must know of a model that gives vectors or scores (`octavo.engine.pooling.modules.Pipeline`). `tasks`:
    what it does."""

    tasks: list[str]
    width: int
    max_tokens: int
    lowers_case: bool = False
    prompts: dict[str, str] = {}
    default_prompt: str | None = None
    dims: tuple[int, ...] | None = None
    truncate_dim: int | None = None
    similarity: str = "cosine"
    modes: list[str] = []
    normalizes: bool = False
    labels: list[str] = []  # of classifications; one: scores of pairs
    has_segments: bool = True  # whether a tokenizer's segment ids reach the model
    pair_activation: str = (
        "none"  # what a pair's score becomes, and below what labels' do, unless a call says otherwise
    )
    label_activation: str = "none"
    pair_style: str = ""  # and below: of `octavo.engine.pooling.questions.Question`
    pair_options: dict[str, bool | int | float | str] = {}
    outputs: list[Output] = []  # what a text becomes: dense, sparse, multi_vector
    late: Late | None = None
    vector_width: int = 0  # of vectors of tokens
    weighs_tokens: bool = False  # whether sparse vectors are weights of a text's own tokens


class EngineInfo(msgspec.Struct, frozen=True, array_like=True):
    """What the API process must know of the engine's model; sizes in tokens unless named."""

    model: str
    architecture: str
    vocab_size: int
    max_model_len: int
    num_blocks: int
    block_tokens: int
    eos_ids: list[int]
    weight_formats: list[str]
    kv_dtype: str
    platform: str
    levels: list[str]
    num_threads: int
    weights_bytes: int
    load_s: dict[str, float]
    epoch: int
    pooling: PoolingInfo | None = None  # None: it gives tokens


class Ready(Message, frozen=True):
    """The engine has run a real one-token pass and takes requests."""

    version: int
    info: EngineInfo


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One position: the token's own logprob and rank (from 1), and the best tokens asked for, best first."""

    token_id: int
    logprob: float
    rank: int
    best_ids: list[int]
    best_logprobs: list[float]


NO_TOKEN_ALLOWED = "no_token_allowed"


class RequestOutput(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one request got from one step. `finish_reason`: '' (goes on), stop, length, abort, error.

    `stop_id` is the stop token that ended it (-1 none; it is not among `tokens`). `prompt_logprobs` comes once,
    position 0 first (which has none: an empty entry).
    """

    request_id: str
    tokens: list[int]
    finish_reason: str = ""
    stop_id: int = -1
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    num_cached: int = 0
    error: str = ""
    choice: int = 0
    code: str = "engine_error"  # of an error; NO_TOKEN_ALLOWED when the request itself leaves nothing to sample


class StepOutputs(Message, frozen=True):
    """One engine step's worth of outputs."""

    outputs: list[RequestOutput]


class ItemOutput(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of one item: `values` little-endian float32, rows of `width`; `ids` int32, one per value or row where the task
    gives them; or `error`, with its `code`."""

    request_id: str
    index: int
    values: bytes
    width: int
    ids: bytes = b""
    error: str = ""
    code: str = "engine_error"


class ItemOutputs(Message, frozen=True):
    """One step's worth of items."""

    outputs: list[ItemOutput]


class Rejected(Message, frozen=True):
    """A request that was not admitted: the pieces of a RequestError."""

    request_id: str
    status: int
    message: str
    param: str | None
    code: str
    retry_after_s: float = 0.0


class Stats(Message, frozen=True):
    """Counters and gauges of the engine; names as in the metrics table (engine/server/metrics)."""

    values: dict[str, float]


class Fatal(Message, frozen=True):
    """The engine cannot go on; it exits after sending this."""

    message: str


ToEngine = AddRequest | AddItems | AbortRequest | FinishRequest | StatsRequest | DrainRequest
FromEngine = Ready | StepOutputs | ItemOutputs | Rejected | Stats | Fatal
