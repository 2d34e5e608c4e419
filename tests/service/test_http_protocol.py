"""The service declines an offer to upgrade the connection and answers the request. The tests use real connections."""

import socket
import threading
import time

import pytest
import uvicorn

from halfseen.service.http_protocol import UpgradeDecliningProtocol


async def app(scope, receive, send):
    """Replies with the length of the body."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    reply = b"%d bytes" % length
    headers = [(b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


@pytest.fixture(scope="module")
def port():
    listening = socket.create_server(("127.0.0.1", 0))
    settings = {"lifespan": "off", "ws": "none", "log_level": "critical", "server_header": False, "date_header": False}
    server = uvicorn.Server(uvicorn.Config(app, http=UpgradeDecliningProtocol, **settings))
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
