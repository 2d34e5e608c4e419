"""uvicorn's HTTP protocol with two changes: it limits the size of request heads, and it declines offers to upgrade.

The head of a request is the request line and the headers. uvicorn keeps heads of any size in memory, before any token
is checked. The protocol in this file ends a connection with 431 as soon as a head is too large. The same limit holds
for everything else that is not part of a body, such as the trailers of a chunked body.

Some clients, for example Java's HttpClient, offer `Upgrade: h2c` (HTTP/2 without TLS) with every request. uvicorn logs
a warning and continues with HTTP/1.1, but its parser has stopped at the end of the headers, so the body of the request
is lost. The protocol in this file parses the headers again without the offer, and then the body.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from halfseen.service.asgi import error_response
from halfseen.service.errors import refusal

MAX_HEAD_BYTES = 65_536  # bytes of the request line and the headers, or of the trailers
_SLICE = 4_096  # bytes that the parser is fed at once, so that the size of an unfinished head is known
_LINGER_SECONDS = 1.0  # time for a refused client to read the reply; closing at once would reset the connection


class HttpProtocol(HttpToolsProtocol):
    """Refuses requests with large heads, and ignores the offer of a request to switch to another protocol."""

    _head_bytes = 0  # bytes fed to the parser since the last byte of a body or the end of the last head
    _too_large = False  # whether the connection is being closed because of a large head
    _upgrade_offered = False  # whether the current request offers another protocol

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if len(data) <= _SLICE:
            self._feed(data)
            return
        for start in range(0, len(data), _SLICE):
            self._feed(data[start : start + _SLICE])

    def _feed(self, data: bytes) -> None:
        if self._too_large or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as offer:
                    if not self._upgrade_offered:  # CONNECT
                        self._unsupported_upgrade_warning()
                        return
                    data = self._head_without_offer() + data[offer.args[0] :]
                    self._upgrade_offered = False
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except httptools.HttpParserError:
            if not self._too_large:
                self.send_400_response("Invalid HTTP request received.")
        if self._too_large or self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()

    def _refuse(self) -> None:
        """Reply with 431 and close the connection. All further data is ignored.

        If an earlier request has not been answered completely, the connection is closed without a reply.
        """
        self._too_large = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self.pipeline or cycle.response_started or not cycle.more_body:
                self.transport.close()
                return
            cycle.disconnected = True  # the trailers of this request are too large, so it must not be executed
            cycle.message_event.set()
        error = refusal("headers_too_large", f"headers: expected at most {MAX_HEAD_BYTES} bytes, got more")
        response = error_response(error, connection="close")
        lines = [*self.server_state.default_headers, *response.raw_headers]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        self.transport.write(STATUS_LINE[error.status] + head + b"\r\n" + bytes(response.body))
        self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def _head_size(self) -> int:
        method, version = self.parser.get_method(), self.parser.get_http_version()
        fields = sum(len(name) + len(value) + 4 for name, value in self.headers)  # with ": " and a line break
        return len(method) + len(self.url) + len(version) + 11 + fields

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                options = [option.strip() for option in value.split(b",")]
                kept = [option for option in options if option.lower() not in (b"upgrade", b"http2-settings")]
                value = b", ".join(kept)
            if name not in (b"upgrade", b"http2-settings"):
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def on_headers_complete(self) -> None:
        # If a head begins in the same slice in which a body ends, the counter does not include the start of the head.
        # So the size of the head is computed if it may be above the limit.
        if self._head_bytes > MAX_HEAD_BYTES - _SLICE and self._head_size() > MAX_HEAD_BYTES:
            self._too_large = True
            return
        self._head_bytes = 0
        self._upgrade_offered = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._upgrade_offered:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        if not self._too_large:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        if not self._upgrade_offered and not self._too_large:
            super().on_message_complete()
