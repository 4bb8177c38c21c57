"""Load a `tokenizer.json` and the small files beside it that say how it is used.

`tokenizer.json` holds the tokenizer itself. The companions, each optional: `tokenizer_config.json` (names of special
tokens, BOS/EOS flags, chat templates, added tokens), `special_tokens_map.json`, `added_tokens.json`,
`generation_config.json` and `config.json` (end-of-text ids), `chat_template.jinja` and
`additional_chat_templates/*.jinja`.
Invariant: the ids of `tokenizer.json` are never changed; companions only add what it lacks. Nothing is executed or
fetched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.engine.errors import ModelError
from octavo.engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RustTokenizer


def load_json_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model folder or of one `tokenizer.json`. Raises ModelError naming the file that is wrong."""
    from tokenizers import Tokenizer as Rust

    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ModelError(f"no tokenizer.json in {path}; give a folder that has one, or a GGUF file")
    try:
        rust = Rust.from_buffer(file.read_bytes())
    except Exception as error:
        raise ModelError(f"{file} is not a tokenizer.json this version reads: {error}") from error
    folder = file.parent
    config = _read(folder / "tokenizer_config.json")
    names = {**_read(folder / "special_tokens_map.json"), **{k: v for k, v in config.items() if k.endswith("_token")}}
    _add_missing(rust, config, _read(folder / "added_tokens.json"))
    ids = {name: _id(rust, names.get(f"{name}_token")) for name in ("bos", "eos", "pad", "unk", "cls", "mask")}
    bos_id = ids["bos"] if ids["bos"] is not None else ids["cls"]
    _apply_flags(rust, config, bos_id, ids["eos"])
    eos_ids = [ids["eos"], *_declared_ends(folder)]
    return Tokenizer(
        rust,
        bos_id=bos_id,
        eos_ids=[i for i in eos_ids if i is not None],
        pad_id=ids["pad"],
        unk_id=ids["unk"],
        mask_id=ids["mask"],
        chat_templates=_chat_templates(folder, config),
    )


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_bytes())
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{file} holds a {type(value).__name__}, not an object")
    return value


def _text(value: Any) -> str | None:
    """A token's spelling, given as a string or as an added-token object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _id(rust: RustTokenizer, value: Any) -> int | None:
    text = _text(value)
    return None if text is None else rust.token_to_id(text)


def _add_missing(rust: RustTokenizer, config: dict[str, Any], legacy: dict[str, Any]) -> None:
    """Added tokens known only to the companions, if their ids fit where the vocabulary ends."""
    from tokenizers import AddedToken

    wanted: dict[int, AddedToken] = {}
    for index, entry in (config.get("added_tokens_decoder") or {}).items():
        options = {
            k: bool(entry[k]) for k in ("lstrip", "rstrip", "single_word", "normalized", "special") if k in entry
        }
        wanted[int(index)] = AddedToken(str(entry["content"]), **options)
    for text, index in legacy.items():
        wanted.setdefault(int(index), AddedToken(text, normalized=False))
    known = rust.get_added_tokens_decoder()
    for index, token in sorted(wanted.items()):
        if index in known:
            continue
        have = rust.token_to_id(token.content)
        if index != (rust.get_vocab_size(with_added_tokens=True) if have is None else have):
            raise ModelError(
                f"added token {token.content!r} wants id {index}, which tokenizer.json gives to something else"
            )
        (rust.add_special_tokens if token.special else rust.add_tokens)([token])


def _apply_flags(rust: RustTokenizer, config: dict[str, Any], bos_id: int | None, eos_id: int | None) -> None:
    """Obey `add_bos_token` and `add_eos_token` where they contradict the tokenizer's own post-processor."""
    from tokenizers import processors

    flags = [(config.get("add_bos_token"), bos_id), (config.get("add_eos_token"), eos_id)]
    if all(flag is None or token is None for flag, token in flags):
        return
    encoding = rust.encode("a")
    inner = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
    before, after = (encoding.ids[: inner[0]], encoding.ids[inner[-1] + 1 :]) if inner else ([], [])
    wanted_before = _with_flag(before, *flags[0])
    wanted_after = _with_flag(after, *flags[1])
    if (wanted_before, wanted_after) == (before, after):
        return
    names = {i: f"S{i}" for i in (*wanted_before, *wanted_after)}
    first, last = [names[i] for i in wanted_before], [names[i] for i in wanted_after]
    rust.post_processor = processors.TemplateProcessing(
        single=[*first, "$A:0", *last],
        pair=[*first, "$A:0", *last, *first, "$B:0", *last],
        special_tokens=[{"id": n, "ids": [i], "tokens": [rust.id_to_token(i) or n]} for i, n in names.items()],
    )


def _with_flag(ids: list[int], flag: Any, token: int | None) -> list[int]:
    if flag is None or token is None or bool(flag) == (token in ids):
        return ids
    return [token] if flag else [i for i in ids if i != token]


def _declared_ends(folder: Path) -> list[int]:
    for name in ("generation_config.json", "config.json"):
        value = _read(folder / name).get("eos_token_id")
        if value is not None:
            return [int(i) for i in (value if isinstance(value, list) else [value])]
    return []


def _chat_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    value = config.get("chat_template")
    if isinstance(value, str):
        found["default"] = value
    elif isinstance(value, list):
        found.update({str(entry["name"]): str(entry["template"]) for entry in value})
    if (folder / "chat_template.jinja").is_file():
        found["default"] = (folder / "chat_template.jinja").read_text("utf-8")
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[file.stem] = file.read_text("utf-8")
    return found
