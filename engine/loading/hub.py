"""Models from the Hugging Face hub, through huggingface_hub (imported only here, on first use) and its own cache.

Invariants: only files that loading needs are fetched: never pickles, never Python; the revision asked for is used for
every file; with `is_offline` only the local cache is read. Which GGUF file is meant is never guessed among several.
Source: https://huggingface.co/docs/huggingface_hub/guides/download.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from octavo.engine.errors import ModelError
from octavo.engine.loading.config import TOKENIZER_FILES

log = logging.getLogger("octavo.loading")
SMALL_FILES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "[0-9]_*/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "artifact.metadata",  # of ColBERT
    *("sparse_linear.pt", "colbert_linear.pt"),  # of bge-m3, read without running them
    "adapter_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
    *TOKENIZER_FILES,
)
SAFETENSORS_PATTERNS = ("*.safetensors", "*.safetensors.index.json", *SMALL_FILES)
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


def model_from_hub(repo: str, revision: str | None, choice: str | None, *, is_offline: bool = False) -> Path:
    """The local folder (safetensors) or first file (GGUF) of hub repository `repo`, downloaded if needed.

    `choice` is a file name or a quantization such as Q4_K_M. ModelError with the choices when it is not clear. A hub that
    cannot be asked does not matter to a model that was fetched before.
    """
    asked = f"{repo}{f'@{revision}' if revision else ''}{f':{choice}' if choice else ''}"
    try:
        names = _list_files(repo, revision, is_offline, asked)
    except ModelError as error:
        if is_offline:
            raise
        try:
            path = model_from_hub(repo, revision, choice, is_offline=True)
        except ModelError:
            raise error from None
        log.warning("%s; what was fetched before is used: %s", error, path)
        return path
    wanted = choose_files(repo, names, choice)
    folder = _snapshot(repo, revision, wanted or list(SAFETENSORS_PATTERNS), is_offline, asked)
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{asked}: not in the hub's cache on this machine: {', '.join(missing)}; "
            f"run `octavo pull {asked}` once with a network"
        )
    return folder / wanted[0] if wanted else folder


def choose_files(repo: str, names: Iterable[str], choice: str | None) -> list[str]:
    """GGUF files to fetch, first part first; empty means the whole safetensors model.

    ModelError listing what the repository has when nothing, or more than one model, fits.
    """
    names = sorted(names)
    ggufs = [name for name in names if name.endswith(".gguf") and not _is_helper(name)]
    if choice is None:
        if any("/" not in name and name.endswith(".safetensors") for name in names):
            return []
        candidates = ggufs
    elif choice in names and choice.endswith(".gguf"):
        candidates = [name for name in ggufs if _model_stem(name) == _model_stem(choice)]
    else:
        candidates = [name for name in ggufs if _has_quantization(name, choice)]
    stems = {_model_stem(name) for name in candidates}
    if len(stems) == 1:
        return candidates
    if not ggufs:
        is_pickled = any(name.endswith((".bin", ".pt", ".pth")) for name in names)
        only = ", only pickled ones, which can run code and are never loaded" if is_pickled else ""
        raise ModelError(f"{repo} has no .safetensors and no .gguf weights{only}")
    asked = f"{choice!r} fits {'several' if stems else 'none'} of" if choice else "several models in"
    raise ModelError(f"{asked} {repo}: {', '.join(ggufs[:20])}; name one: {repo}:FILE")


def _is_helper(name: str) -> bool:
    """Files that go with a model, image projectors and importance matrices, are not models."""
    base = name.rsplit("/", 1)[-1].lower()
    return base.startswith("mmproj") or "imatrix" in base


def _model_stem(name: str) -> str:
    return _PART.sub("", name).removesuffix(".gguf")


def _has_quantization(name: str, quantization: str) -> bool:
    """Whole words only: Q4_K must not find Q4_K_M."""
    stem = _model_stem(name).lower()
    return re.search(rf"(?:^|[-._/]){re.escape(quantization.lower())}$", stem) is not None


def _list_files(repo: str, revision: str | None, is_offline: bool, asked: str) -> list[str]:
    if is_offline:
        folder = _snapshot(repo, revision, None, True, asked)
        return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    hub = _hub()
    try:
        names: list[str] = hub.HfApi().list_repo_files(repo, revision=revision)
        return names
    except Exception as error:  # the library's own, httpx's and requests' errors have no common base
        raise _failed(repo, error) from None


def _snapshot(repo: str, revision: str | None, patterns: list[str] | None, is_offline: bool, asked: str) -> Path:
    hub = _hub()
    try:
        return Path(
            hub.snapshot_download(repo, revision=revision, allow_patterns=patterns, local_files_only=is_offline)
        )
    except Exception as error:  # as above
        if is_offline:
            raise ModelError(
                f"{repo} is not in the hub's cache on this machine, and fetching is switched off (--offline, OCTAVO_OFFLINE); "
                f"run `octavo pull {asked}` once with a network, or give a local folder"
            ) from None
        raise _failed(repo, error) from None


def _hub() -> Any:
    import huggingface_hub

    return huggingface_hub


def _failed(repo: str, error: Exception) -> ModelError:
    reason = str(error).strip().splitlines()
    return ModelError(
        f"cannot get {repo} from the hub: {type(error).__name__}: {reason[0] if reason else 'no reason given'}; "
        "check the name, the network and (for gated models) the login, or give a local folder"
    )
