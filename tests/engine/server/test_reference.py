"""docs/server.md names everything the server has: routes, fields, metrics."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.engine.server.api import make_routes
from octavo.engine.server.metrics import Metrics
from octavo.engine.server.schema import HARMLESS, NEUTRAL, ChatBody, CompletionBody
from octavo.engine.server.state import ServerState, Settings

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "server.md").read_text()


def test_every_route_is_documented() -> None:
    for route in make_routes(ServerState(Settings(("m",)))):
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


def test_every_metric_is_documented() -> None:
    stats = dict.fromkeys(("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_steps"), 0.0)
    stats |= dict.fromkeys(
        ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "num_aborts", "step_seconds"), 0
    )
    for name in re.findall(r"^# TYPE octavo:(\w+)", Metrics("m").render(stats, True), re.M):
        assert name in PAGE, name
