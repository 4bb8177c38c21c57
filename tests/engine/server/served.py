"""A server process for lifecycle tests: `python -m tests.engine.server.served PORT_FILE|UDS MODE DRAIN_S`.

MODE: fast (an answer of 10 steps of 50 ms), endless, slowload (the model takes 30 s to come).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.engine.server.fakes import FakeEngine, Script, endless, make_text, piece_ids

from octavo.engine.model_text import ModelText
from octavo.engine.server.api import make_app
from octavo.engine.server.binding import bind_tcp, bind_unix
from octavo.engine.server.cli import leave
from octavo.engine.server.engine_api import Engine
from octavo.engine.server.fleet import Fleet, Member
from octavo.engine.server.logs import setup_logging
from octavo.engine.server.serving import Lifecycle
from octavo.engine.server.state import ServerState, Settings


def main(where: str, mode: str, drain_s: str) -> int:
    setup_logging("debug")
    state = ServerState(Settings(("tiny",)))
    sock = bind_unix(Path(where)) if where.endswith(".sock") else bind_tcp("127.0.0.1", 0)
    if not where.endswith(".sock"):
        Path(where).write_text(str(sock.getsockname()[1]))

    async def load() -> tuple[Engine, ModelText]:
        if mode == "slowload":
            await asyncio.sleep(30)
        engine = FakeEngine()
        token = piece_ids(b" and")[0]
        engine.choose = lambda request: (
            Script([[token]])
            if request.request_id == "warm-up"
            else endless(token, 0.05)
            if mode == "endless"
            else Script([[token]] * 10, 0.05)
        )
        return engine, make_text()

    fleet = Fleet([Member(state, load)])
    life = Lifecycle(fleet, make_app(fleet, ("canary-key-4711",)), sock, float(drain_s))
    return asyncio.run(life.run(lambda seconds: print("ready", sorted(seconds), flush=True)))


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
