"""What endpoints that score texts and pairs of texts share: documents as pairs with a query, truncation, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from octavo.engine.messages import ItemOptions, ItemOutput
from octavo.engine.pooling.pairs import PairTruncation
from octavo.engine.pooling.texts import Item
from octavo.engine.server.http import Request, bad_request
from octavo.engine.server.items import ItemsRun
from octavo.engine.server.json_numbers import shortest
from octavo.engine.server.state import Model, ServerState
from octavo.engine.server.vectors import Asked, endless, run_items, values_of

_TRUNCATIONS: tuple[PairTruncation, ...] = get_args(PairTruncation)


def pair_truncation(asked: str | None, usual: PairTruncation) -> PairTruncation:
    """The policy of a call."""
    if asked is None:
        return usual
    if asked not in _TRUNCATIONS:
        raise bad_request(f"truncate is {asked[:40]!r}; it must be {', '.join(_TRUNCATIONS)}", "truncate")
    return asked


def tei_pair_truncation(truncate: bool | None, direction: str | None) -> PairTruncation:
    """text-embeddings-inference's fields as a policy. Pairs lose their ends."""
    if direction is not None and direction.lower() != "right":
        raise bad_request("truncation_direction: pairs of texts lose their end; send Right", "truncation_direction")
    return "longest_first" if truncate else "error"


@dataclass
class Scored:
    """Scores of a call by index, as doubles that print short; None where there are none."""

    run: ItemsRun
    rows: list[list[float] | None]


async def score_items(state: ServerState, request: Request, model: Model, asked: Asked) -> Scored:
    """Runs a call whose results are rows of scores."""
    rows: list[list[float] | None] = [None] * len(asked.inputs)

    def take(index: int, output: ItemOutput) -> None:
        rows[index] = shortest(values_of(output)[0]).tolist()

    return Scored(await run_items(state, request, model, asked, take), rows)


def asked_pairs(
    state: ServerState,
    model: Model,
    pairs: Sequence[tuple[str, str]],
    param: str,
    *,
    prompt: str = "",
    truncate: PairTruncation = "error",
    activation: str,
    max_second: int | None = None,
    keeps_errors: bool = False,
    is_list: bool = True,
) -> Asked:
    """A call over pairs."""
    sides = model.pairs
    assert sides is not None
    if len(pairs) > state.settings.bounds.max_inputs:
        raise bad_request(
            f"{param} has {len(pairs)} entries; at most {state.settings.bounds.max_inputs}: send several calls", param
        )

    most = state.settings.bounds.max_whole_chars

    def make(some: Sequence[Any]) -> list[Item]:
        is_endless = [truncate == "longest_first" and max(map(len, pair)) > most for pair in some]
        good = [pair for pair, is_bad in zip(some, is_endless, strict=True) if not is_bad]
        made = iter(sides.items(good, prompt, truncate, max_second=max_second))
        return [endless(most) if is_bad else next(made) for is_bad in is_endless]

    options = ItemOptions(activation=activation)
    task = "score" if "score" in model.pooling.tasks else "classify"
    return Asked(pairs, param, task=task, options=options, is_list=is_list, keeps_errors=keeps_errors, make=make)


def by_score(scores: Sequence[list[float] | None]) -> list[tuple[int, float]]:
    """(index, score) from high to low, equal ones in their order; without those that there are not."""
    found = [(index, row[0]) for index, row in enumerate(scores) if row is not None]
    return sorted(found, key=lambda one: -one[1])
