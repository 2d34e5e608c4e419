"""A reply leaves in one piece, and nothing of HTTP is lost on the way: checked on the bytes of real connections."""

import asyncio
import socket
import threading
import time

import pytest
import uvicorn

from halfseen.service.one_write import OneWrite, _Holding


class Recorder:
    """A transport that writes down what it is told."""

    def __init__(self):
        self.calls = []

    def write(self, data):
        self.calls.append(data)

    def close(self):
        self.calls.append("closed")

    def is_closing(self):
        return False

    def pause_reading(self):
        self.calls.append("paused")


HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ([HEAD, b"body"], [HEAD + b"body"]),
        ([HEAD, b"part", b"part"], [HEAD + b"part", b"part"]),
        ([HEAD, b""], [HEAD]),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, b"body"], [b"HTTP/1.1 100 Continue\r\n\r\n", HEAD + b"body"]),
        ([HEAD, HEAD], [HEAD + HEAD]),  # a body that looks like a head
        ([HEAD], []),
    ],
)
def test_a_head_goes_with_what_follows_it(written, sent):
    transport = Recorder()
    holding = _Holding(transport)
    for data in written:
        holding.write(data)
    assert transport.calls == sent


def test_a_head_that_nothing_follows_is_sent_before_the_end():
    transport = Recorder()
    holding = _Holding(transport)
    holding.write(HEAD)
    holding.pause_reading()
    holding.close()
    assert transport.calls == ["paused", HEAD, "closed"]


async def app(scope, receive, send):
    """Replies of every kind, by path."""
    path = scope["path"]
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    body += message.get("body", b"")
    if path == "/parts":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"one", b"HTTP/1.1 two", b"three"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})
    elif path == "/nothing":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
    elif path == "/breaks":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        raise RuntimeError("after the head")
    else:
        reply = b"%d bytes" % len(body)
        headers = [(b"content-length", b"%d" % len(reply))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})


@pytest.fixture(scope="module")
def port():
    listening = socket.create_server(("127.0.0.1", 0))
    settings = {"http": OneWrite, "lifespan": "off", "ws": "none", "log_level": "critical", "server_header": False}
    server = uvicorn.Server(uvicorn.Config(app, date_header=False, **settings))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def talk(port, *pieces, until):
    """All that comes back, up to `until` or the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        got = b""
        for piece in pieces:
            connection.sendall(piece)
        while not got.endswith(until) or not until:
            data = connection.recv(65536)
            if not data:
                break
            got += data
        return got


def test_a_reply_and_another_on_the_same_connection(port):
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n4 bytes"
    assert talk(port, request, request, until=answer + answer) == answer + answer


def test_a_reply_without_a_body(port):
    got = talk(port, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", until=b"\r\n\r\n")
    assert got == b"HTTP/1.1 204 No Content\r\n\r\n"
    got = talk(port, b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", until=b"\r\n\r\n")
    assert got == b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n"


def test_a_reply_in_parts(port):
    got = talk(port, b"GET /parts HTTP/1.1\r\nHost: x\r\n\r\n", until=b"0\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert head == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked"
    assert body == b"3\r\none\r\nc\r\nHTTP/1.1 two\r\n5\r\nthree\r\n0\r\n\r\n"


def test_a_caller_who_waits_to_be_told_to_go_on(port):
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert connection.recv(1000).endswith(b"3 bytes")


def test_what_is_no_http_and_what_breaks_end_the_connection(port):
    assert talk(port, b"nonsense\r\n\r\n", until=b"").startswith(b"HTTP/1.1 400 ")
    got = talk(port, b"GET /breaks HTTP/1.1\r\nHost: x\r\n\r\n", until=b"")
    assert got == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"


OFFER = (
    b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQ\r\nContent-Length: 4\r\n\r\nbody"
)
PLAIN = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"


@pytest.mark.parametrize("cut", [0, 5, 60, OFFER.index(b"body") - 1, OFFER.index(b"body"), len(OFFER) - 1])
def test_an_offer_of_another_protocol_is_passed_over_and_its_body_kept(port, cut):
    answers = b"".join(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n%d bytes" % n for n in (4, 3, 4))
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(OFFER[:cut])
        time.sleep(0.05)
        connection.sendall(OFFER[cut:] + PLAIN + OFFER)
        got = b""
        while len(got) < len(answers) and (data := connection.recv(65536)):
            got += data
    assert got == answers


def test_an_offer_in_chunks_and_a_tunnel(port):
    chunks = OFFER.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked").replace(
        b"body", b"2\r\nbo\r\n0\r\n\r\n"
    )
    assert talk(port, chunks, until=b"2 bytes").endswith(b"2 bytes")
    assert talk(port, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", until=b"").startswith(b"HTTP/1.1 400 ")
