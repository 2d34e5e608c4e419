"""Who may do what: bearer tokens with scopes, streams and an end; and an open service kept to its own machine."""

from __future__ import annotations

import asyncio
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
from halfseen.journal.events import NAME
from halfseen.journal.journal import Token
from halfseen.service.errors import ServiceError

SCOPES = ("read", "decide", "admin")
DESCRIBE = "describe"  # wanted of a request, and no scope of a token: whoever decides has to know the arms
_GRANTED = {scope: frozenset({scope, "admin"}) for scope in SCOPES} | {DESCRIBE: frozenset(SCOPES)}
PREFIX = "halfseen"
REFRESH = 2.0  # seconds after which a token revoked elsewhere is refused here
_ASK_AGAIN = 0.5  # seconds between two looks for a token that is not known here
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def live(token: Token, now: float) -> bool:
    return token.revoked is None and (token.expires is None or 1e6 * now < token.expires)


def may(token: Token, scope: str) -> bool:
    """Whoever rules may also read and decide; reading and deciding are apart, but for what a stream is ("describe")."""
    return not _GRANTED[scope].isdisjoint(token.scopes)


def new_token(
    scopes: Sequence[str],
    streams: Sequence[str] = (),
    *,
    name: str = "",
    days: float | None = None,
    now: float | None = None,
) -> tuple[str, Token]:
    """The token, to be shown once, and what is kept of it.

    The secret is 256 random bits, so a plain SHA-256 is the right hash: there is no dictionary to try, and a slow hash
    would only make every request slow.
    """
    for scope in scopes:
        if scope not in SCOPES:
            raise invalid("scope", f"'{scope}'", f"one of: {', '.join(SCOPES)}")
    if not scopes:
        raise invalid("scope", "none", f"at least one of: {', '.join(SCOPES)}")
    for stream in streams:
        if not NAME.fullmatch(stream):
            raise invalid("stream", f"'{stream}'", "the name of a stream")
    if days is not None and not 0 < days <= 36_500:
        raise invalid("expires", days, "days, more than 0 and at most 36500")
    created = time.time() if now is None else now
    identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    kept = Token(
        identity,
        name,
        _digest(secret),
        list(dict.fromkeys(scopes)),
        list(dict.fromkeys(streams)) or None,
        int(1e6 * created),
        None if days is None else int(1e6 * (created + 86_400 * days)),
    )
    return f"{PREFIX}_{identity}_{secret}", kept


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("latin-1", "replace")).digest()


class Guard:
    """Looks at the headers of a request. Tokens are kept in memory and read again every few seconds."""

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
        self._buckets: dict[str, tuple[float, float]] = {}  # token -> what is left of its rate, and when that was so
        self._rate = rate
        self._asked = -float("inf")  # when a token that was not known was last looked for
        self._reading = asyncio.Lock()
        self.required = not (always_open or open_at_first)

    async def refresh(self) -> None:
        """Read the tokens. An open service closes for good with its first token, even one that has ended since."""
        async with self._reading:
            tokens = await self._load()
            self._tokens = {token.id: token for token in tokens}
            self.required = not self._always_open and (not self._open_at_first or bool(tokens))

    async def keep_fresh(self) -> None:
        """Until cancelled. While the database is away the tokens known last stay in force."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                await self.refresh()
            except Exception:  # whatever a database can raise; the next turn tries again
                continue

    async def admit(
        self, headers: Iterable[tuple[bytes, bytes]], scope: str, stream: str | None = None
    ) -> Token | None:
        """The token of a request that may go on, None where none is asked for. 401, 403 or 429 otherwise."""
        try:
            return self.check(headers, scope, stream)
        except _NotKnown:
            if self._clock() - self._asked < _ASK_AGAIN:
                raise
        self._asked = self._clock()  # not when tokens were read last: this one may have been made since
        try:
            await self.refresh()
        except Exception:
            raise ServiceError(503, "unavailable", "database: got no answer; want it back") from None
        return self.check(headers, scope, stream)

    def admits(self, headers: Iterable[tuple[bytes, bytes]], scope: str, stream: str | None = None) -> bool:
        """Whether a request may go on; False if `admit` has to look, 401, 403 or 429 if it may not."""
        try:
            self.check(headers, scope, stream)
        except _NotKnown:
            return False
        return True

    def check(self, headers: Iterable[tuple[bytes, bytes]], scope: str, stream: str | None = None) -> Token | None:
        """As `admit`, with the tokens known here."""
        if not self.required:
            self._check_origin(headers)
            return None
        token = self._known(next((value for name, value in headers if name == b"authorization"), b""))
        if not may(token, scope):
            got = f"a token for {', '.join(token.scopes)}"
            raise ServiceError(403, "forbidden", f"token: got {got}; want one for {scope}")
        if token.streams and stream is not None and stream not in token.streams:
            got = f"a token for {', '.join(token.streams)}"
            raise ServiceError(403, "forbidden", f"token: got {got}; want one for the stream asked for")
        if self._rate:
            self._count(token.id)
        return token

    def _known(self, header: bytes) -> Token:
        kind, _, given = header.partition(b" ")
        if not given or kind.lower() != b"bearer":
            got = "none" if not header else "another kind of credentials"
            raise ServiceError(401, "unauthorised", f"token: got {got}; want 'Authorization: Bearer …'")
        prefix, _, rest = given.decode("latin-1").strip().partition("_")
        public, _, secret = rest.partition("_")
        token = self._tokens.get(public)
        # The same work whether the token is known or not, and a comparison that does not stop at the first difference.
        same = hmac.compare_digest(_digest(secret), token.sha256 if token else _NOBODY)
        if token is None or not same or prefix != PREFIX:
            raise _NotKnown(
                401, "unauthorised", "token: got one that is not known; want one from 'halfseen token create'"
            )
        if not live(token, self._clock()):
            ended = "revoked" if token.revoked is not None else "expired"
            raise ServiceError(401, "unauthorised", f"token: got one that is {ended}; want a live one")
        return token

    def _count(self, token: str) -> None:
        now = self._clock()
        left, then = self._buckets.get(token, (self._burst, now))
        left = min(self._burst, left + self._rate * max(0.0, now - then))
        if left < 1:
            self._buckets[token] = left, now
            raise ServiceError(429, "too_many", f"rate: got more than {self._rate:g} requests a second; want fewer")
        self._buckets[token] = left - 1, now

    @property
    def _burst(self) -> float:
        return max(1.0, self._rate)

    @staticmethod
    def _check_origin(headers: Iterable[tuple[bytes, bytes]]) -> None:
        """A service without tokens trusts its machine, but not every web page that is open in a browser there.

        Such a page shows itself by its Origin, or by a name other than the machine's own if it has bent its DNS.
        """
        host = origin = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if host and _hostname(b"//" + host) not in _LOOPBACK:
            raise ServiceError(403, "forbidden", "host: got a name that is not this machine's own; want localhost")
        if origin and origin.partition(b"://")[2] != host:
            raise ServiceError(403, "forbidden", "origin: got a page of another site; want one of this service")


class _NotKnown(ServiceError):
    """A token not known here: perhaps made a moment ago."""


_NOBODY = _digest(secrets.token_urlsafe(32))


@lru_cache(256)
def _hostname(url: bytes) -> str | None:
    try:
        return urlsplit(url.decode("latin-1")).hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a service bound to that host is reached from its own machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(token: Token, now: float) -> dict[str, Any]:
    """What may be shown of a token."""
    state = "live" if live(token, now) else "revoked" if token.revoked is not None else "expired"
    return {
        "id": token.id,
        "name": token.name,
        "scopes": ", ".join(token.scopes),
        "streams": "all" if token.streams is None else ", ".join(token.streams),
        "created": _moment(token.created),
        "expires": "never" if token.expires is None else _moment(token.expires),
        "state": state,
    }


def _moment(microseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(microseconds / 1e6))
