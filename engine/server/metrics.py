"""Counters, gauges and histograms in Prometheus' text format 0.0.4, named one to one after vLLM's.

`vllm:NAME` is `octavo:NAME`. Written by hand: importing prometheus-client took 78 ms of process start where this takes
none, and a scrape of this table is under a millisecond. Label values come from fixed sets (model name, finish reason,
route pattern, status), never from a request, so cardinality is bounded. Times in seconds, sizes in tokens.
Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

_LATENCY = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
_CALL = (0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0, 480.0, 960.0)
_SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5)

#: key in Engine.stats() -> (name after the prefix, kind, help)
ENGINE_METRICS: dict[str, tuple[str, str, str]] = {
    "num_requests_running": ("num_requests_running", "gauge", "Requests in the running batch."),
    "num_requests_waiting": ("num_requests_waiting", "gauge", "Requests waiting to be scheduled."),
    "kv_cache_usage_perc": ("kv_cache_usage_perc", "gauge", "Used share of the KV blocks, 0 to 1."),
    "prefix_cache_queries": ("prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache."),
    "prefix_cache_hits": ("prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache."),
    "num_preemptions": ("num_preemptions_total", "counter", "Preemptions by the scheduler."),
    "num_aborts": ("engine_aborts_total", "counter", "Requests the engine ended without an answer."),
    "num_items_waiting": ("engine_items_waiting", "gauge", "Texts waiting for vectors."),
    "num_tokens_waiting": ("engine_tokens_waiting", "gauge", "Their tokens."),
    "num_items": ("engine_items_total", "counter", "Texts through the model."),
    "num_item_tokens": ("engine_item_tokens_total", "counter", "Their tokens."),
    "num_items_failed": (
        "engine_items_failed_total",
        "counter",
        "Texts that have no vector, for not being finite or a fault.",
    ),
    "num_steps": ("engine_steps_total", "counter", "Engine steps."),
    "step_seconds": ("engine_step_seconds_total", "counter", "Time spent in engine steps."),
    "step_predicted_seconds": (
        "engine_step_predicted_seconds_total",
        "counter",
        "Time the steps were predicted to take.",
    ),
    "itl_target_seconds": (
        "engine_itl_target_seconds",
        "gauge",
        "Time between tokens that prompts must leave; 0: no limit.",
    ),
    "num_late_steps": (
        "engine_itl_exceeded_total",
        "counter",
        "Steps with running streams that took longer than that.",
    ),
}
#: first part of keys "KEY:LABEL" -> (name after the prefix, label, help); gauges
ENGINE_LABELLED = {
    "step_cost_term": ("engine_step_cost_seconds", "term", "Seconds of a step per unit of work, as learned."),
}
#: first part of keys "KEY:LABEL:BOUND" and "KEY:LABEL:sum" -> the same; counts per bucket, not cumulative
ENGINE_HISTOGRAMS = {
    "step_cost_ratio": ("engine_step_cost_ratio", "kind", "Time a step took over the time predicted, by kind of step."),
}
FINISH_REASONS = ("stop", "length", "abort", "error")
ABORT_REASONS = ("client_gone", "slow_client", "shutdown")


def _labels(pairs: Iterable[tuple[str, str]]) -> str:
    quoted = ((k, v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for k, v in pairs)
    return "{" + ",".join(f'{key}="{value}"' for key, value in quoted) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _parts(stats: Mapping[str, float], key: str, count: int) -> list[list[str]]:
    """Keys that begin with `key` and have so many parts, taken apart."""
    parts = [name.split(":") for name in stats if name.startswith(f"{key}:")]
    return [part for part in parts if len(part) == count]


def _engine_histogram(
    stats: Mapping[str, float], key: str, name: str, base: tuple[tuple[str, str], ...], label: str, text: str
) -> Iterable[str]:
    """A histogram of the engine's, per value of its label."""
    bounds: dict[str, list[str]] = {}
    for _, value, bound in _parts(stats, key, 3):
        bounds.setdefault(value, []).append(bound)
    if bounds:
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} histogram"
    for value, found in bounds.items():
        made = Histogram(tuple(float(bound) for bound in found if bound not in ("sum", "+Inf")))
        made.counts = [int(stats[f"{key}:{value}:{bound}"]) for bound in found if bound != "sum"]
        made.total = stats[f"{key}:{value}:sum"]
        yield from made.lines(name, (*base, (label, value)))


class Histogram:
    """Cumulative buckets of one quantity."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: tuple[tuple[str, str], ...]) -> Iterable[str]:
        """The sample lines: every bucket, sum, count."""
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            yield f"{name}_bucket{_labels((*labels, ('le', bound)))} {seen}"
        yield f"{name}_sum{_labels(labels)} {self.total!r}"
        yield f"{name}_count{_labels(labels)} {seen}"


class Metrics:
    """What the API process counts itself; the engine's own numbers join at the scrape."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.aborts = dict.fromkeys(ABORT_REASONS, 0)
        self.responses: dict[tuple[str, str], int] = {}
        self.histograms = {
            "time_to_first_token_seconds": (Histogram(_LATENCY), "Time from arrival to the first token."),
            "inter_token_latency_seconds": (Histogram(_TOKEN), "Time between tokens of one request."),
            "e2e_request_latency_seconds": (Histogram(_CALL), "Time from arrival to the last token."),
            "request_prompt_tokens": (Histogram(_SIZES), "Prompt tokens per request."),
            "request_generation_tokens": (Histogram(_SIZES), "Generated tokens per request."),
        }

    def observe(self, name: str, value: float) -> None:
        """One value for the histogram `name`."""
        self.histograms[name][0].observe(value)

    def count_response(self, route: str, status: int) -> None:
        """One HTTP answer; `route` is a pattern of the table or `unmatched`."""
        key = (route, str(status))
        self.responses[key] = self.responses.get(key, 0) + 1

    def render(self, engine_stats: Mapping[str, float], is_engine_up: bool) -> str:
        """The whole exposition. `engine_stats` holds keys of ENGINE_METRICS; others are left out."""
        base = (("model_name", self.model_name),)
        out: list[str] = []

        def family(
            name: str, kind: str, text: str, samples: Iterable[tuple[tuple[tuple[str, str], ...], float]]
        ) -> None:
            out.append(f"# HELP octavo:{name} {text}")
            out.append(f"# TYPE octavo:{name} {kind}")
            out.extend(f"octavo:{name}{_labels((*base, *labels))} {_number(value)}" for labels, value in samples)

        family("engine_up", "gauge", "1 while the engine process lives.", [((), float(is_engine_up))])
        for key, (name, kind, text) in ENGINE_METRICS.items():
            if key in engine_stats:
                family(name, kind, text, [((), engine_stats[key])])
        for key, (name, label, text) in ENGINE_LABELLED.items():
            found = {part[1]: engine_stats[":".join(part)] for part in _parts(engine_stats, key, 2)}
            if found:
                family(name, "gauge", text, [(((label, value),), number) for value, number in found.items()])
        for key, (name, label, text) in ENGINE_HISTOGRAMS.items():
            out += _engine_histogram(engine_stats, key, f"octavo:{name}", base, label, text)
        family("prompt_tokens_total", "counter", "Prompt tokens processed.", [((), self.prompt_tokens)])
        family("generation_tokens_total", "counter", "Tokens generated.", [((), self.generation_tokens)])
        family(
            "request_success_total",
            "counter",
            "Finished requests by reason.",
            [((("finished_reason", reason),), count) for reason, count in self.finished.items()],
        )
        family(
            "aborts_total",
            "counter",
            "Calls ended before their answer was complete.",
            [((("reason", reason),), count) for reason, count in self.aborts.items()],
        )
        family(
            "http_responses_total",
            "counter",
            "HTTP answers by route and status.",
            [((("route", route), ("status", status)), count) for (route, status), count in self.responses.items()],
        )
        for name, (histogram, text) in self.histograms.items():
            out.append(f"# HELP octavo:{name} {text}")
            out.append(f"# TYPE octavo:{name} histogram")
            out.extend(histogram.lines(f"octavo:{name}", base))
        return "\n".join(out) + "\n"


def merged(texts: Iterable[str]) -> str:
    """Expositions of several models as one: a family's samples have to stand together."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                heads.setdefault(name, [line])
                samples.setdefault(name, [])
            elif line.startswith("# TYPE "):
                if len(heads[name]) == 1:
                    heads[name].append(line)
            else:
                samples[name].append(line)
    return "\n".join(line for name in heads for line in (*heads[name], *samples[name])) + "\n"
