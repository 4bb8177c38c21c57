"""docs/server.md names everything the server has: routes, fields, metrics."""

from __future__ import annotations

import re
from pathlib import Path

from tests.engine.server.fakes import fleet_of

from octavo.engine.server import pooling_schema
from octavo.engine.server.api import make_routes
from octavo.engine.server.metrics import Metrics
from octavo.engine.server.schema import HARMLESS, NEUTRAL, ChatBody, CompletionBody
from octavo.engine.server.state import ServerState, Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"
VECTORS = "".join((DOCS / name).read_text().split("## Over HTTP")[1] for name in ("embeddings.md", "rerank.md"))
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "server.md").read_text()


def test_every_route_is_documented() -> None:
    for route in make_routes(fleet_of(ServerState(Settings(("m",))))):
        assert route.path in PAGE, route.path


def test_every_field_is_documented_in_its_group() -> None:
    honoured, harmless, neutral = (PAGE.split(f"**{name}")[1].split("\n\n")[0] for name in ("Hon", "Harm", "Known"))
    for name in {*ChatBody.__struct_fields__, *CompletionBody.__struct_fields__}:
        if name in HARMLESS:
            assert name in harmless
        elif name in NEUTRAL:
            assert name in neutral
        else:
            assert name in honoured, name


def test_every_field_of_vectors_is_documented() -> None:
    bodies = [value for name, value in vars(pooling_schema).items() if name.endswith("Body")]
    assert len(bodies) > 3
    for name in {name for body in bodies for name in body.__struct_fields__}:
        assert re.search(rf"\b{name}\b", VECTORS), name


def test_every_metric_is_documented() -> None:
    stats = dict.fromkeys(("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_steps"), 0.0)
    stats |= dict.fromkeys(
        ("num_items_waiting", "num_tokens_waiting", "num_items", "num_item_tokens", "num_items_failed"), 0
    )
    stats |= dict.fromkeys(
        ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "num_aborts", "step_seconds"), 0
    )
    for name in re.findall(r"^# TYPE octavo:(\w+)", Metrics("m").render(stats, True), re.M):
        assert name in PAGE, name
