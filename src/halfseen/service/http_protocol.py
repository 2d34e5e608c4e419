"""uvicorn's HTTP protocol, changed so that it declines offers to upgrade the connection.

Some clients, for example Java's HttpClient, offer `Upgrade: h2c` (HTTP/2 without TLS) with every request. uvicorn logs
a warning and continues with HTTP/1.1, but its parser has stopped at the end of the headers, so the body of the request
is lost. The protocol in this file parses the headers again without the offer, and then the body.
"""

from __future__ import annotations

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class UpgradeDecliningProtocol(HttpToolsProtocol):
    """Handles a request that offers another protocol as if it did not offer one."""

    _upgrade_offered = False  # whether the current request offers another protocol

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as offer:
                    if not self._upgrade_offered:  # CONNECT
                        self._unsupported_upgrade_warning()
                        return
                    data = self._head_without_offer() + data[offer.args[0] :]
                    self._upgrade_offered = False
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

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
        self._upgrade_offered = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._upgrade_offered:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._upgrade_offered:
            super().on_message_complete()
