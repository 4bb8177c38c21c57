"""The platform that options and environment ask for, chosen and opened."""

from __future__ import annotations

import logging

from octavo.engine.config import EngineConfig, Environment
from octavo.platforms.limits import Limits
from octavo.platforms.platform import Platform
from octavo.platforms.registry import choose_platform

log = logging.getLogger("octavo.engine")


def chosen_platform(config: EngineConfig, environment: Environment, limits: Limits) -> Platform:
    """The first platform that can run; a warning for every one that was preferred and cannot. PlatformError if none can."""
    num_threads = config.num_threads or environment.threads or limits.num_compute_threads
    numerics = config.numerics or environment.numerics
    chosen = choose_platform(
        config.device or config.platform or environment.platform, num_threads, config.isa or environment.isa, numerics
    )
    for name, reason in chosen.refused:
        log.warning("platform %s is not used: %s", name, reason)
    return chosen.platform
