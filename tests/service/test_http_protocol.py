"""The service limits the heads of requests and declines offers to upgrade. The tests use real connections."""

import json
import socket
import threading
import time

import pytest
import uvicorn

from halfseen.service.http_protocol import MAX_HEAD_BYTES, HttpProtocol

cut_off = []  # lengths of the bodies that ended with a disconnect


async def app(scope, receive, send):
    """Replies with the length of the body."""
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            cut_off.append(length)
            return
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    reply = b"%d bytes" % length
    headers = [(b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


@pytest.fixture(scope="module")
def port():
    listening = socket.create_server(("127.0.0.1", 0))
    settings = {"lifespan": "off", "ws": "none", "log_level": "critical", "server_header": False, "date_header": False}
    server = uvicorn.Server(uvicorn.Config(app, http=HttpProtocol, **settings))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(10)


def talk(port, *pieces, length):
    """Send pieces of data and return `length` bytes of the reply, or fewer if the connection ends earlier."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        got = b""
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.05)
        while len(got) < length and (data := connection.recv(65536)):
            got += data
        return got


def replies(*lengths):
    return b"".join(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n%d bytes" % length for length in lengths)


OFFER = (
    b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQ\r\nContent-Length: 4\r\n\r\nbody"
)
CHUNKED_OFFER = OFFER.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked").replace(
    b"body", b"2\r\nbo\r\n0\r\n\r\n"
)
PLAIN = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"


@pytest.mark.parametrize("cut", [0, 5, 60, OFFER.index(b"body") - 1, OFFER.index(b"body"), len(OFFER) - 1])
def test_an_offer_is_declined_without_losing_the_body(port, cut):
    expected = replies(4, 3, 4)
    assert talk(port, OFFER[:cut], OFFER[cut:] + PLAIN + OFFER, length=len(expected)) == expected


def test_an_offer_with_a_chunked_body_is_declined(port):
    assert talk(port, CHUNKED_OFFER + PLAIN, length=len(replies(2, 3))) == replies(2, 3)


def test_other_requests_are_served_as_usual(port):
    assert talk(port, PLAIN, PLAIN, length=len(replies(3, 3))) == replies(3, 3)
    waiting = PLAIN.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    expected = b"HTTP/1.1 100 Continue\r\n\r\n" + replies(3)
    assert talk(port, waiting[:-3], waiting[-3:], length=len(expected)) == expected


@pytest.mark.parametrize("request_", [b"nonsense\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_invalid_http_and_tunnels_end_the_connection(port, request_):
    assert talk(port, request_, length=1 << 20).startswith(b"HTTP/1.1 400 ")


# ---------------------------------------------------------------------- the size of a head


def request_with_head(size, body=b"abc"):
    start = b"POST / HTTP/1.1\r\nContent-Length: %d\r\nX: " % len(body)
    return start + b"x" * (size - len(start) - 4) + b"\r\n\r\n" + body


def assert_refused(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n"), answer[:200]
    assert b"\r\nconnection: close" in head
    message = f"headers: expected at most {MAX_HEAD_BYTES} bytes, got more"
    assert json.loads(body) == {"error": {"code": "headers_too_large", "message": message}}


def test_a_head_of_the_largest_size_is_accepted_and_a_larger_one_refused(port):
    largest, larger = request_with_head(MAX_HEAD_BYTES), request_with_head(MAX_HEAD_BYTES + 1)
    assert talk(port, largest, length=len(replies(3))) == replies(3)
    after_a_body = b"POST / HTTP/1.1\r\nContent-Length: 60001\r\n\r\n" + b"y" * 60001 + largest
    expected = replies(3).replace(b"length: 7", b"length: 11").replace(b"3 bytes", b"60001 bytes") + replies(3)
    assert talk(port, after_a_body, length=len(expected)) == expected
    assert_refused(talk(port, larger, length=1 << 20))
    assert_refused(talk(port, larger[:7], larger[7:40_000], larger[40_000:], length=1 << 20))
    pipelined = talk(port, PLAIN, larger, length=1 << 20)
    assert pipelined.startswith(replies(3))
    assert_refused(pipelined.removeprefix(replies(3)))


@pytest.mark.parametrize(
    ("start", "repeated"),
    [
        (b"GET /", b"a"),  # an endless request line
        (b"GET / HTTP/1.1\r\nX: ", b"a"),  # an endless header
        (b"GET / HTTP/1.1\r\n", b"a"),  # an endless name of a header
        (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),  # headers without end
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n0\r\n", b"a: b\r\n"),  # trailers
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n0\r\nX: ", b"a"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x=", b"a"),  # an endless chunk extension
    ],
    ids=["url", "value", "name", "headers", "trailers", "trailer", "extension"],
)
@pytest.mark.parametrize("piece", [7, 100_000])
def test_a_head_without_end_is_refused_and_the_connection_closed(port, start, repeated, piece):
    cut_off.clear()
    data = (start + repeated * 400_000)[:400_000]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent, answer = 0, b""
        connection.setblocking(False)
        while not answer and sent < len(data):
            try:
                sent += connection.send(data[sent : sent + piece])
                answer = connection.recv(65536)
            except BlockingIOError:
                pass
        connection.setblocking(True)
        connection.settimeout(10)
        while more := connection.recv(65536):
            answer += more
    assert_refused(answer)
    if b"chunked" in start:
        deadline = time.monotonic() + 5
        while not cut_off and time.monotonic() < deadline:
            time.sleep(0.01)
        assert cut_off in ([0], [2])  # the request was not executed


def test_trailers_within_the_limit_are_accepted(port):
    body = b"2\r\nbo\r\n0\r\nX: " + b"x" * 60_000 + b"\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    assert talk(port, request + PLAIN, length=len(replies(2, 3))) == replies(2, 3)


def test_a_body_may_be_larger_than_a_head(port):
    body = b"z" * 900_000
    request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    assert talk(port, request, length=10).startswith(b"HTTP/1.1 2")
    chunks = b"1\r\nz\r\n" * 50_000 + b"0\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    assert talk(port, request, length=10).startswith(b"HTTP/1.1 2")
