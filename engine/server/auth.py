"""API keys: compared as digests in constant time; the keys themselves are not kept.

Every configured digest is compared on every attempt, so time tells neither which key came close nor how many there are.
A key's digest also names its tenant: prefix-cache entries are salted with it, so that tenants cannot probe each other.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from octavo.engine.errors import ConfigError
from octavo.engine.server.http import HttpError

_CHALLENGE = [(b"www-authenticate", b"Bearer")]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(b"octavo api key\0" + key).digest()


class KeyRing:
    """The keys a server accepts. Empty: everyone is welcome."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests: list[bytes] = []
        for key in keys:
            if not key or key != key.strip():
                raise ConfigError("an API key is empty or has spaces around it; give at least one visible character")
            self._digests.append(_digest(key.encode()))

    @property
    def is_open(self) -> bool:
        """True when no key is needed."""
        return not self._digests

    def tenant(self, authorization: bytes) -> bytes:
        """The digest of the key in `Authorization: Bearer KEY`; raises a 401 when it is not one of ours."""
        if self.is_open:
            return b""
        scheme, _, key = authorization.partition(b" ")
        given = _digest(key.strip() if scheme.lower() == b"bearer" else b"")
        found = b""
        for digest in self._digests:
            if hmac.compare_digest(digest, given):
                found = digest
        if not found:
            asked = "no API key was sent" if not authorization else "the API key is not valid"
            message = f"{asked}; send the header Authorization: Bearer KEY"
            raise HttpError(401, message, code="invalid_api_key", headers=list(_CHALLENGE))
        return found


def cache_salt(tenant: bytes, requested: str | None) -> bytes:
    """The prefix-cache salt, 16 bytes or empty: the tenant's own; a `cache_salt` in the request only narrows it."""
    if not tenant and not requested:
        return b""
    return hashlib.sha256(b"octavo cache salt\0" + tenant + b"\0" + (requested or "").encode()).digest()[:16]
