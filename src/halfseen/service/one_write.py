"""uvicorn's protocol, but with the head and the body of a reply in one write: a packet and a system call less.

And an offer to go on in another protocol (`Upgrade: h2c`, which some clients make every time) is passed over, as HTTP
allows: the request is read again without it. uvicorn would lose its body.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class _Holding:
    """A transport that holds the head of a reply back until what comes next; all else goes on as it comes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):  # 100 Continue is waited for
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWrite(HttpToolsProtocol):
    """A reply that has only a head is sent when it is complete; one that comes in parts, with its first part."""

    _offered = False  # whether the request that is being read offers another protocol

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Holding(transport))  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as offer:
                    if not self._offered:  # CONNECT
                        self._unsupported_upgrade_warning()
                        return
                    data = self._head_without_offer() + data[offer.args[0] :]
                    self._offered = False
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                kept = [
                    part for part in value.split(b",") if part.strip().lower() not in (b"upgrade", b"http2-settings")
                ]
                value = b",".join(kept)
            if name not in (b"upgrade", b"http2-settings"):
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def on_headers_complete(self) -> None:
        self._offered = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._offered:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._offered:
            super().on_message_complete()
