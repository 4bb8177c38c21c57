"""A model's memory plan from its headers is the plan its engine gets, and no weight is read for it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engine import bits
from tests.engine.server.fakes import make_tokenizer
from tests.golden import tiny, tiny_gguf

from octavo.engine import build
from octavo.engine.build import Keeper, Phases, build_core, model_identity, prepare, preview
from octavo.engine.config import EngineConfig
from octavo.engine.errors import ConfigError, PlatformError
from octavo.engine.loading.config import open_model
from octavo.engine.messages import AddRequest
from octavo.engine.sampling_params import SamplingParams
from octavo.platforms.limits import read_limits
from octavo.platforms.registry import PLATFORMS

NAMES = [entry.name for entry in PLATFORMS if not entry.probe()]


@pytest.mark.parametrize("name", NAMES)
def test_preview_is_the_plan_of_the_engine(name: str, tmp_path: Path) -> None:
    model = tiny_gguf.write_gguf("llama", tmp_path / "m.gguf")
    config = EngineConfig(
        str(model), platform=name, num_threads=1, kv_bytes=1 << 22, max_batch_tokens=32, max_num_seqs=2
    )
    plan = preview(config)
    core = build_core(config)
    assert plan.num_pages == core.info.num_blocks and plan.weights_bytes == core.info.weights_bytes
    assert plan.scratch_bytes > 0


@pytest.mark.skipif("x86" not in NAMES, reason="the x86 kernels do not run here")
def test_weights_that_are_mapped_and_not_yet_touched_are_not_room_for_the_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_gguf.write_gguf("llama", tmp_path / "m.gguf")
    untouched = replace(read_limits(), usable_memory=4 << 20, free_memory=4 << 20)
    monkeypatch.setattr(build, "read_limits", lambda: untouched)  # the same before and after the load
    config = EngineConfig(str(model), platform="x86", num_threads=1, max_batch_tokens=64, max_num_seqs=64)
    made = prepare(config, Phases())
    held = made.weights_bytes + made.plan.scratch_bytes + made.plan.headroom_bytes
    assert held + made.plan.kv_bytes <= untouched.free_memory and made.plan.num_pages == preview(config).num_pages


@pytest.mark.parametrize("form", ["none", "q4_0"])
def test_a_model_larger_than_memory_is_refused_before_a_weight_is_read(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_gguf.write_gguf("llama", tmp_path / "m.gguf")
    monkeypatch.setattr(build, "load_model", lambda *args, **options: pytest.fail("weights were read"))
    monkeypatch.setattr(build, "read_limits", lambda: replace(read_limits(), free_memory=1 << 10))
    with pytest.raises(ConfigError, match=r"no room for the model: its weights take .* and 9\.537e-07 GiB are free"):
        prepare(EngineConfig(str(model), num_threads=1, quantization=form), Phases())


@pytest.mark.parametrize("form", ["q4_0", "w8a8"])
def test_a_model_that_fits_when_it_is_quantized_is_not_refused(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_gguf.write_gguf("llama", tmp_path / "m.gguf")
    stored = model.stat().st_size
    config = EngineConfig(str(model), platform="reference", num_threads=1, max_batch_tokens=4, max_num_seqs=4)
    monkeypatch.setattr(build, "read_limits", lambda: replace(read_limits(), free_memory=stored // 2))
    with pytest.raises(ConfigError, match="no room for the model"):
        preview(config)
    with pytest.raises(ConfigError, match="no room for a KV pool"):
        preview(replace(config, quantization=form))


@pytest.mark.skipif("x86" not in NAMES, reason="the x86 kernels do not run here")
def test_dry_weights_are_not_packed(tmp_path: Path) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "m")
    config = EngineConfig(str(model), platform="x86", num_threads=1, kv_bytes=1 << 22, max_num_seqs=4)
    dry, real = (prepare(config, Phases(), is_dry=is_dry) for is_dry in (True, False))
    heads = [made.decoder.weights.head for made in (dry, real)]
    assert not any(bytes(heads[0].held)) and any(bytes(heads[1].held))
    assert dry.plan.scratch_bytes == real.plan.scratch_bytes


@pytest.mark.skipif("x86" not in NAMES, reason="the x86 kernels do not run here")
@pytest.mark.parametrize(("case", "num_searches"), [("llama3", 0), ("llama", 1)])
def test_a_table_that_is_the_head_too_is_searched_once(
    case: str, num_searches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    monkeypatch.setattr("octavo.platforms.cpu.weights.damage", lambda raw: searched.append(raw.name))
    bits.make_core(tiny.write_safetensors(case, tmp_path / "m"), platform="x86")
    found = [name for name in searched if name.startswith("model.")]  # not the self-test's
    assert len(found) == num_searches  # packing the head searches it


@pytest.mark.skipif("x86" not in NAMES, reason="the x86 kernels do not run here")
@pytest.mark.parametrize("block_tokens", [16, 48])
def test_pages_that_kernels_cannot_read_are_refused(block_tokens: int, tmp_path: Path) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "m")
    with pytest.raises(PlatformError, match="multiple of 32"):
        build_core(EngineConfig(str(model), platform="x86", num_threads=1, block_tokens=block_tokens))


@pytest.mark.skipif("x86" not in NAMES, reason="the x86 kernels do not run here")
def test_a_closed_executable_takes_no_steps(tmp_path: Path) -> None:
    core = bits.make_core(tiny.write_safetensors("llama", tmp_path / "m"), platform="x86")
    core.runner.executable.close()
    core.add(AddRequest("late", [1, 2], SamplingParams(max_tokens=1)))
    assert "was closed" in core.step()[0].error


def test_packed_weights_settle_and_are_kept_in_the_background_or_kept_when_told() -> None:
    done: list[str] = []
    here = threading.current_thread().name

    def note(what: str) -> None:
        done.append(what if threading.current_thread().name == here else f"{what} behind")

    in_time = Keeper(lambda: note("saved"), lambda: note("settled"), after_s=0.01)
    in_time._timer.join(10)
    assert done == ["settled behind", "saved behind"]
    told = Keeper(lambda: note("saved"), lambda: note("settled"), after_s=3600)
    told.keep()
    assert done[2:] == ["saved"] and told._timer.finished.is_set()
    told.settle(), told.settle(), in_time.settle()
    assert done[3:] == ["settled"]


def test_who_asks_waits_for_the_copy_that_is_being_written() -> None:
    begun, may_end, saved = threading.Event(), threading.Event(), []

    def save() -> None:
        begun.set()
        assert may_end.wait(10)
        saved.append(1)

    keeper = Keeper(save, lambda: None, after_s=0.0)
    assert begun.wait(10)
    asking = threading.Thread(target=keeper.keep)
    asking.start()
    asking.join(0.05)
    assert asking.is_alive() and not saved
    may_end.set()
    asking.join(10)
    assert not asking.is_alive() and saved


def test_a_core_takes_open_files_and_may_leave_the_first_token_to_its_caller(tmp_path: Path) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "m")
    config = EngineConfig(str(model), num_threads=1, kv_bytes=1 << 22, max_num_seqs=4)
    files = open_model(model, needs_tokenizer=False)
    core = build_core(config, files=files, proves=False)
    assert core.num_steps == 0 and "first_token" not in core.info.load_s
    core.add(AddRequest("first", [1, 2], SamplingParams(max_tokens=1)))
    assert core.step()[0].tokens and not files.checkpoint.unclaimed()
    assert build_core(config).num_steps > 0


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_models_that_differ_in_their_tokenizer_alone_have_no_kv_in_common(kind: str, tmp_path: Path) -> None:
    writers = {"safetensors": tiny.write_safetensors, "gguf": tiny_gguf.write_gguf}
    model = writers[kind]("llama", tmp_path / ("m.gguf" if kind == "gguf" else "m"))
    config = EngineConfig(str(model), platform="reference", kv_bytes=1 << 22, max_num_seqs=4)
    spec = prepare(config, Phases(), is_dry=True).spec
    words = [tmp_path / name for name in ("one", "other")]
    for folder in words:
        folder.mkdir()
        make_tokenizer().rust.save(str(folder / "tokenizer.json"))

    def identity(tokenizer: Path | None = None) -> bytes:
        files = open_model(model, needs_tokenizer=False)
        return model_identity(files, spec, [], None if tokenizer is None else str(tokenizer))

    found = [identity(), identity(words[0]), identity(words[1])]
    assert len(set(found)) == 3
    assert found == [identity(), identity(words[0]), identity(words[1])]
    assert identity(words[0] / "tokenizer.json") == found[1]
    (words[0] / "added_tokens.json").write_text("{}")
    assert identity(words[0]) != found[1]
    if kind == "safetensors":
        make_tokenizer().rust.save(str(model / "tokenizer.json"))
        assert identity() != found[0]


def test_the_tokenizer_an_engine_is_told_of_is_part_of_its_caches_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []
    make = build.make_scheduler
    monkeypatch.setattr(build, "make_scheduler", lambda *a, **k: seen.append(k["model_identity"]) or make(*a, **k))
    model = tiny.write_safetensors("llama", tmp_path / "m")
    make_tokenizer().rust.save(str(tmp_path / "tokenizer.json"))
    for tokenizer in (None, str(tmp_path)):
        bits.make_core(model, platform="reference", tokenizer=tokenizer)
    assert len(set(seen)) == 2
