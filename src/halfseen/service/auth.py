"""Bearer tokens with scopes, streams and an expiry date.

A service without tokens accepts only requests from its own machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from halfseen.errors import invalid
from halfseen.journal.events import STREAM_NAME
from halfseen.journal.journal import Token
from halfseen.service.errors import ServiceError, refusal

SCOPES = ("read", "decide", "admin")
DESCRIBE = "describe"  # the scope of routes that every valid token may use; no token itself has it
_GRANTED_BY = {scope: frozenset({scope, "admin"}) for scope in SCOPES} | {DESCRIBE: frozenset(SCOPES)}
_PREFIX = "halfseen"
_REFRESH_SECONDS = 2.0  # between two reads of all tokens; a token revoked meanwhile is accepted until the next read
_LOOKUP_SECONDS = 0.5  # the shortest time between two reads of the database for unknown tokens


def is_live(token: Token, now: float) -> bool:
    return token.revoked is None and (token.expires is None or 1e6 * now < token.expires)


def new_token(
    scopes: Sequence[str],
    streams: Sequence[str] = (),
    *,
    name: str = "",
    days: float | None = None,
    now: float | None = None,
) -> tuple[str, Token]:
    """Make a token. Return the token as a string, which the user sees only once, and the record to store.

    The secret is 256 random bits, so a plain SHA-256 is the right hash. Nobody can guess such a secret, and a slow hash
    would only make every request slow.
    """
    for scope in scopes:
        if scope not in SCOPES:
            raise invalid("scope", f"one of: {', '.join(SCOPES)}", f"'{scope}'")
    if not scopes:
        raise invalid("scope", f"at least one of: {', '.join(SCOPES)}", "none")
    for stream in streams:
        if not STREAM_NAME.fullmatch(stream):
            raise invalid("stream", "the name of a stream", f"'{stream}'")
    if days is not None and not 0 < days <= 36_500:
        raise invalid("expires", "a number of days above 0 and at most 36500", days)
    created = time.time() if now is None else now
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    record = Token(
        token_id,
        name,
        _digest(secret),
        list(dict.fromkeys(scopes)),
        list(dict.fromkeys(streams)) or None,
        int(1e6 * created),
        None if days is None else int(1e6 * (created + 86_400 * days)),
    )
    return f"{_PREFIX}_{token_id}_{secret}", record


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("latin-1", "replace")).digest()


class Authorizer:
    """Checks the headers of requests against the tokens.

    The tokens are kept in memory and are read again from the database every few seconds. With `open_at_first`, no token
    is required until the first token exists. With `always_open`, no token is ever required. `rate` is the number of
    requests per second that each token allows, or 0 for no limit.
    """

    def __init__(
        self,
        load: Callable[[], Awaitable[list[Token]]],
        *,
        open_at_first: bool,
        always_open: bool = False,
        rate: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._load, self._clock = load, clock
        self._open_at_first, self._always_open = open_at_first, always_open
        self._tokens: dict[str, Token] = {}
        self._buckets: dict[str, tuple[float, float]] = {}  # per token: requests left, and when they were counted
        self._rate = rate
        self._looked_up = -float("inf")  # when the database was last read for an unknown token
        self._reading = asyncio.Lock()
        self.required = not (always_open or open_at_first)

    async def refresh(self) -> None:
        """Read the tokens. As soon as one token exists, even an expired one, tokens are required."""
        async with self._reading:
            tokens = await self._load()
            self._tokens = {token.id: token for token in tokens}
            self.required = not self._always_open and (not self._open_at_first or bool(tokens))

    async def refresh_forever(self) -> None:
        """Refresh until cancelled. While the database is unavailable, the tokens read last remain valid."""
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            with contextlib.suppress(Exception):  # any database error; the next refresh tries again
                await self.refresh()

    async def authorize(
        self, headers: Iterable[tuple[bytes, bytes]], scope: str, stream: str | None = None
    ) -> Token | None:
        """Return the token of an allowed request, or None if no token is required. Raise 401, 403 or 429 otherwise."""
        try:
            return self.check(headers, scope, stream)
        except _UnknownToken:
            if self._clock() - self._looked_up < _LOOKUP_SECONDS:
                raise
        self._looked_up = self._clock()  # the token may have been made since the last refresh
        try:
            await self.refresh()
        except Exception:
            raise refusal("unavailable", "The database does not answer.") from None
        return self.check(headers, scope, stream)

    def check(self, headers: Iterable[tuple[bytes, bytes]], scope: str, stream: str | None = None) -> Token | None:
        """Do the same as `authorize`, but only with the tokens in memory."""
        if not self.required:
            self._check_origin(headers)
            return None
        token = self._find_token(next((value for name, value in headers if name == b"authorization"), b""))
        if _GRANTED_BY[scope].isdisjoint(token.scopes):
            got = f"a token with {', '.join(token.scopes)}"
            raise refusal("forbidden", f"token: expected a token with the scope {scope}, got {got}")
        if token.streams and stream is not None and stream not in token.streams:
            got = f"a token for {', '.join(token.streams)}"
            raise refusal("forbidden", f"token: expected a token for this stream, got {got}")
        if self._rate:
            self._take_from_bucket(token.id)
        return token

    def _find_token(self, header: bytes) -> Token:
        scheme, _, credentials = header.partition(b" ")
        if not credentials or scheme.lower() != b"bearer":
            got = "none" if not header else "another kind of credentials"
            raise refusal("unauthorised", f"token: expected a header 'Authorization: Bearer …', got {got}")
        prefix, _, rest = credentials.decode("latin-1").strip().partition("_")
        token_id, _, secret = rest.partition("_")
        token = self._tokens.get(token_id)
        # The time of the check must not reveal whether the token exists or how much of the secret is right.
        same = hmac.compare_digest(_digest(secret), token.sha256 if token else _NO_DIGEST)
        if token is None or not same or prefix != _PREFIX:
            raise _UnknownToken(
                401,
                "unauthorised",
                "token: expected a token made by 'halfseen token create', got one that does not exist",
            )
        if not is_live(token, self._clock()):
            state = "a revoked one" if token.revoked is not None else "an expired one"
            raise refusal("unauthorised", f"token: expected a valid token, got {state}")
        return token

    def _take_from_bucket(self, token_id: str) -> None:
        """Apply the rate limit to a request, with a bucket that holds as many requests as are allowed per second."""
        now, capacity = self._clock(), max(1.0, self._rate)
        left, since = self._buckets.get(token_id, (capacity, now))
        left = min(capacity, left + self._rate * max(0.0, now - since))
        if left < 1:
            self._buckets[token_id] = left, now
            raise refusal("too_many", f"rate: expected at most {self._rate:g} requests per second, got more")
        self._buckets[token_id] = left - 1, now

    @staticmethod
    def _check_origin(headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuse requests of web pages from other sites, which may be open in a browser on this machine.

        A request of such a page has another Origin, or, after DNS rebinding, a Host that is not a name of this machine.
        """
        host = origin = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if host and not _is_loopback_header(host):
            raise refusal("forbidden", "host: expected localhost, got another name")
        if origin and origin.partition(b"://")[2] != host:
            raise refusal("forbidden", "origin: expected a page of this service, got a page of another site")


class _UnknownToken(ServiceError):
    """The error for a token that is not in memory. The token may be new and only in the database."""


_NO_DIGEST = _digest(secrets.token_urlsafe(32))


@lru_cache(256)
def _is_loopback_header(host: bytes) -> bool:
    """Return whether a header `Host` names this machine: localhost or a loopback address, with or without a port."""
    try:
        return is_loopback(urlsplit("//" + host.decode("latin-1")).hostname or "")
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether only programs on the same machine can reach a service bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def describe_token(token: Token, now: float) -> dict[str, Any]:
    """Return the fields of a token that may be shown to users, as text."""
    state = "live" if is_live(token, now) else "revoked" if token.revoked is not None else "expired"
    return {
        "id": token.id,
        "name": token.name,
        "scopes": ", ".join(token.scopes),
        "streams": "all" if token.streams is None else ", ".join(token.streams),
        "created": _format_time(token.created),
        "expires": "never" if token.expires is None else _format_time(token.expires),
        "state": state,
    }


def _format_time(microseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(microseconds / 1e6))
