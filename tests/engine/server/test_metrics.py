"""/metrics: valid Prometheus text, vLLM's names, right numbers, bounded labels."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.engine.server.conftest import LiveServer

from octavo.engine.cost import CostModel
from octavo.engine.server.metrics import Metrics

Post = Callable[..., httpx.Response]
VLLM_NAMES = {
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:num_preemptions",
    "vllm:prompt_tokens",
    "vllm:generation_tokens",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_success",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
}


def scrape(server: LiveServer) -> dict[str, float]:
    """Sample line (name and labels without the model's) -> value."""
    text = httpx.get(server.url + "/metrics", trust_env=False).text
    out: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "model_name")
            key = f"{sample.name}[{labels}]"
            assert key not in out
            out[key] = sample.value
    return out


def test_names_map_one_to_one_to_those_dashboards_know(server: LiveServer) -> None:
    text = httpx.get(server.url + "/metrics", trust_env=False).text
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {name.replace("vllm:", "octavo:") for name in VLLM_NAMES} <= names


def test_counts_are_those_of_the_calls(server: LiveServer, post: Post) -> None:
    before = scrape(server)
    post("/v1/completions", prompt="abcd")
    post("/v1/completions", prompt="abcd", max_tokens=1, stream=True)
    post("/v1/completions", prompt="abcd", temperature=-1)
    after = scrape(server)

    def grown(key: str) -> float:
        return after[key] - before.get(key, 0.0)

    assert grown("octavo:prompt_tokens_total[]") == 8
    assert grown("octavo:generation_tokens_total[]") == 4
    assert grown("octavo:request_success_total[finished_reason=stop]") == 1
    assert grown("octavo:request_success_total[finished_reason=length]") == 1
    assert grown("octavo:time_to_first_token_seconds_count[]") == 2
    assert grown("octavo:inter_token_latency_seconds_count[]") == 2
    assert grown("octavo:e2e_request_latency_seconds_count[]") == 2
    assert grown("octavo:request_prompt_tokens_sum[]") == 8
    assert grown("octavo:http_responses_total[route=/v1/completions,status=200]") == 2
    assert grown("octavo:http_responses_total[route=/v1/completions,status=400]") == 1
    assert after["octavo:num_preemptions_total[]"] == 3
    assert after["octavo:kv_cache_usage_perc[]"] == 0.25


def test_buckets_are_cumulative() -> None:
    metrics = Metrics("m")
    for value in (0.0005, 0.03, 0.03, 1e9):
        metrics.observe("time_to_first_token_seconds", value)
    lines = metrics.render({}, True).splitlines()
    name = 'octavo:time_to_first_token_seconds_bucket{model_name="m",le='
    counts = {line[len(name) :].split('"')[1]: int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)}
    assert (counts["0.001"], counts["0.02"], counts["0.04"], counts["80.0"], counts["+Inf"]) == (1, 1, 3, 3, 4)


def test_labels_are_bounded_whatever_clients_send(server: LiveServer, http_session: httpx.Client) -> None:
    before = len(scrape(server))
    for i in range(30):
        http_session.request(f"M{i}", f"{server.url}/nothing/{i}")
        http_session.get(f"{server.url}/v1/models/x{i}")
    assert len(scrape(server)) <= before + 2


def test_model_name_is_escaped() -> None:
    text = Metrics('a"b\\c\nd').render({}, True)
    families = list(text_string_to_metric_families(text))
    assert families[0].samples[0].labels["model_name"] == 'a"b\\c\nd'


def test_engine_that_does_not_answer_leaves_the_rest(server: LiveServer) -> None:
    server.call(server.engine.kill)
    samples = scrape(server)
    assert samples["octavo:engine_up[]"] == 0
    assert "octavo:num_requests_running[]" not in samples
    assert "octavo:prompt_tokens_total[]" in samples


def test_predicted_and_actual_step_times_are_shown() -> None:
    model = CostModel((2e-3, 8e-4, 9e-3, 1e-4, 7e-7, 4e-7, 1.5e-4), doubt=0.1)
    work = model.work([(5, 1, 1)])
    for _ in range(3):
        model.observe(work, 1.08 * model.seconds(work))
    stats = {**model.stats(), "itl_target_seconds": 0.05, "num_late_steps": 2.0}
    samples = {}
    for family in text_string_to_metric_families(Metrics("m").render(stats, True)):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "model_name")
            samples[f"{sample.name}[{labels}]"] = sample.value
    assert samples["octavo:engine_step_predicted_seconds_total[]"] == model.predicted_s
    assert samples["octavo:engine_step_cost_ratio_count[kind=decode]"] == 3
    assert samples["octavo:engine_step_cost_ratio_bucket[kind=decode,le=1.1]"] == 3
    assert samples["octavo:engine_step_cost_ratio_bucket[kind=decode,le=1.0]"] == 0
    assert samples["octavo:engine_step_cost_ratio_bucket[kind=mixed,le=+Inf]"] == 0
    assert samples["octavo:engine_step_cost_seconds[term=pair]"] == model.terms["pair"]
    assert samples["octavo:engine_itl_target_seconds[]"] == 0.05 and samples["octavo:engine_itl_exceeded_total[]"] == 2
