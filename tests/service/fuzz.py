"""Random requests to a running service: valid ones, and ones that are broken in every way that HTTP and JSON allow.

The requests follow from the seed and from the replies of the service. A failure prints the request:

    PYTHONPATH=tests python -m service.fuzz --requests 100000
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from service.served import Served, run_here, serving

from halfseen.service.http_protocol import MAX_HEAD_BYTES
from halfseen.service.schemas import MAX_KEY_LENGTH, Limits

TIMEOUT = 60.0  # seconds after which a request counts as hanging
STREAMS, NAMED_ARMS = 12, ["low", "high", "mid/dle", "ünï", "a b"]
# Sizes below, at and above the limits of the service.
COUNTS = [0, 1, 2, 3, 8, 50, 1_001, 100_001, 1_000_001, 10**9 + 1, 10**12, 10**15, 2**63, 10**40]  # such as `latent`
HEADER_BYTES = [4_000, MAX_HEAD_BYTES - 1_000, MAX_HEAD_BYTES, 2 * MAX_HEAD_BYTES, 20 * MAX_HEAD_BYTES]
KEY_CHARACTERS = [MAX_KEY_LENGTH, MAX_KEY_LENGTH + 1, 100_000, Limits().body_bytes]
EXPECTED_5XX = {503}  # with the header retry-after

ODD_VALUES = [
    *[None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, -1e308, 1e-320, 1e100, -1e100, 1.0000001e100, 2**31, 2**53 + 1],
    *[
        2**63,
        2**64,
        -(2**63) - 1,
        10**40,
        "",
        " ",
        "a",
        "0",
        "NaN",
        "null",
        "\x00",
        "a\x00b",
        "\n",
        "é",
        "\u202e",
        "😀",
    ],
    *["x" * 300, "../../etc/passwd", "%00", "'; DROP TABLE events; --", [], [[]], [None], [0], ["a"], [1e308] * 5],
    *[{}, {"a": 1}, {"": None}, {"\x00": 0}, [[[[[[]]]]]], [0] * 50],
]
ODD_TEXT = [
    *[
        b"",
        b"{",
        b"}",
        b"[",
        b"null",
        b"true",
        b"0",
        b'"',
        b'"\\ud800"',
        b"\x00",
        b"\xff\xfe",
        b"{}{}",
        b"{} x",
        b"NaN",
    ],
    *[b"[NaN]", b"-", b"1e", b"[" * 3000, b'{"a":' * 3000, b"[" * 500 + b"]" * 500, b"\xef\xbb\xbf{}"],
    b'{"observation": [1e999, 0]}',
    b'{"observation": [NaN, 0]}',
    b'{"observation": [Infinity, 0]}',
    b'{"observation": [1, 0], "observation": [2, 0]}',
    b'{"observation": [0, 0], "key": "a", "key": null}',
    b'{"observation": [' + b"1," * 2000 + b"1]}",
    b'{"observation": [0' + b"0" * 3000 + b"]}",
    b'{"observation": [0.' + b"0" * 3000 + b"1, 0]}",
    b'{"observation": [1' + b"0" * 3000 + b", 0]}",
    b'{"decision": "a", "value": 1, "value": 2}',
    b'{"name": "\xc3\x28"}',
    b'{"name":"a","name":"b","observed":1,"arms":1}',
]
ODD_HEADERS = [
    (b"Content-Type", b"text/plain"),
    (b"Content-Type", b"application/json; charset=utf-16"),
    (b"Content-Encoding", b"gzip"),
    (b"Accept", b"image/png"),
    (b"Accept-Encoding", b"gzip, br;q=x"),
    (b"If-None-Match", b"*\xe9"),
    (b"Range", b"bytes=0-1,-5"),
    (b"Expect", b"100-continue"),
    *[(b"X-" + b"a" * 100, b"b" * size) for size in HEADER_BYTES],
    (b"x" * MAX_HEAD_BYTES, b""),
    (b"Authorization", b"Bearer other"),
    (b"Upgrade", b"websocket"),
    (b"Connection", b"Upgrade"),
    (b"Origin", b"null"),
    (b"Cookie", b"a=\x80"),
    (b"X-Forwarded-For", b"\t"),
]
ODD_ENDINGS = ["/", "//", "/x", "%00", "%ff", "%", "%2e%2e", "?", "#a", ";a=b", "\\", "/../../healthz"]
ODD_NAMES = ["%C3%BC", "..", "%2F", "a" * 1000, "%F0%9F%98%80", "s1%0d%0aX:1", "-", "*"]
ODD_PATHS = ["*", "/" + "a" * 3000, "/" + "a" * MAX_HEAD_BYTES, "/v1//streams", "/v1/streams/%", "/%2e%2e/v1/streams"]
QUERY = ("limit", "after", "points", "coordinate", "format")
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW", "get"]


@dataclass
class Report:
    """What the service answered."""

    statuses: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    slowest_request: str = ""
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{status}: {count:,}" for status, count in sorted(self.statuses.items()))
        return (
            f"{sum(self.statuses.values()):,} requests ({counts}), slowest {1000 * self.slowest:.0f} ms "
            f"({self.slowest_request}), {len(self.faults)} faults"
        )


class Fuzzer:
    """Generates requests, sends them over one connection and checks the replies."""

    def __init__(self, url: str, tokens: dict[str, str], seed: int) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname, parts.port)
        self._tokens, self._random = tokens, random.Random(seed)
        self._connection: socket.socket | None = None
        self._decisions: dict[str, list[str]] = {}  # ids of recent decisions, by stream
        self._exports: list[bytes] = []
        self._imported = 0
        self.report = Report()

    # ------------------------------------------------------------------ values

    def _stream(self) -> str:
        return f"s{self._random.randrange(STREAMS)}"

    def _observation(self) -> object:
        rng = self._random
        values = [rng.choice([0, 1, -2.5, None, rng.gauss(0, 1), 1e100, 1e-300]) for _ in range(2)]
        return {"x": values[0], "y": values[1]} if rng.random() < 0.2 else values

    def _key(self) -> str:
        rng = self._random
        long = "k" * rng.choices(KEY_CHARACTERS, [20, 20, 4, 1])[0]
        return rng.choice(["k", "k1", "ü", long, str(rng.random())])

    def _decision(self) -> dict[str, object]:
        body: dict[str, object] = {"observation": self._observation()}
        if self._random.random() < 0.2:
            body["available"] = self._random.sample([*NAMED_ARMS, 0, 1, 2], self._random.randrange(4))
        if self._random.random() < 0.2:
            body |= self._time()
        if self._random.random() < 0.2:
            body["key"] = self._key()
        if self._random.random() < 0.2:
            numbers = [self._random.choice([0, 0.5, 1, 1e100, 1e101, -1, 1e-300]) for _ in range(3)]
            arms = self._random.choice([NAMED_ARMS, NAMED_ARMS[:2], [0, 1, 2]])
            by_name = {str(arm): self._random.choice([0, 0.5, 1]) for arm in arms}
            body["costs"] = self._random.choice([numbers, numbers[:2], by_name, [0, 0, 0], [0, 1], [], {}])
        return body

    def _time(self) -> dict[str, object]:
        """Return the fields that say how much time has passed."""
        rng = self._random
        steps: list[object] = [0, 1, 2, 99, 101, 150, 10**6, 10**12, 10**15, 2**70, -1, 1.5, 2.0, True, "1", None]
        minute = f"2026-01-01T00:{rng.randrange(60):02}:00Z"
        stamps = [
            minute,
            minute,
            minute[:-1],
            "0001-01-01T00:00:00+14:00",
            "9999-12-31T23:59:59-14:00",
            "now",
            "",
            None,
        ]
        return {"elapsed": rng.choice(steps)} if rng.random() < 0.5 else {"time": rng.choice(stamps)}

    def _reward(self, stream: str) -> dict[str, object]:
        if self._random.random() < 0.05:
            stream = self._stream()
        known = self._random.choice(self._decisions.get(stream, ["none"]))
        value = self._random.choice([0, 1, -1.5, 1e100, 1e-300, self._random.gauss(0, 1)])
        return {"decision": known, "value": value}

    def _spec(self) -> dict[str, object]:
        rng = self._random
        agent = rng.choice(
            ["ts-pco", "random", "lag-ts", "meb", "hmm-ts", "emkf-ts", "adaptive", "mts", "bayes", "none"]
        )
        spec: dict[str, object] = {
            "name": rng.choice([self._stream(), *(f"n{rng.randrange(400)}" for _ in range(4))]),
            "observed": rng.choice([2] * 6 + [["x", "y"], ["x", "y"], 0, 1001]),
            "arms": rng.choice([2, 3, NAMED_ARMS, NAMED_ARMS] * 3 + [[], 1001]),
            "agent": agent,
            "seed": rng.choice([0, 1, 2**64 - 1, None]),
        }
        options: dict[str, object] = {}
        names = ["latent", "lags", "states", "window", "restarts", "iterations", "memory", "history", "max_pending"]
        for name in rng.sample(names, rng.choice([0, 0, 0, 1, 2])):
            options[name] = rng.choice([*COUNTS, -1, "auto", 2.5, None])
        numbers = ["regularisation", "width", "delta", "noise_std", "minimum_probability", "floor", "refit"]
        for name in rng.sample(numbers, rng.choice([0, 0, 0, 1, 2])):
            options[name] = rng.choice([0, 0.5, 1, 1e-300, 1e300, -1, "theory", "manual", None, [], {}])
        if rng.random() < 0.1:
            options["budget"] = rng.choice([[100, 50], [0, 1], [1, 0], [1e100, 10**9], [5], "all", None, [1, 2.5]])
        if options:
            spec["options"] = options
        if rng.random() < 0.2:
            spec["reward_wait"] = rng.choice([0.01, 1, 1e9, 1e10, 0, -1])
            spec["default_reward"] = rng.choice([0, 1, 1e100, 1e101, None])
            spec["late_rewards"] = rng.choice(["record", "fold", "both"])
        if rng.random() < 0.2:
            spec["step"] = rng.choice([60, 0.001, 1e-7, 1e9, 1e10, 0, -1, None])
        if rng.random() < 0.2:
            spec["guardrails"] = self._guardrails()
        return spec

    def _guardrails(self) -> dict[str, object]:
        rng = self._random
        shares: list[object] = [0, 0.1, 0.1, 0.3, 1, 1e-300, -0.1, 1.5, "high", None]
        controls = [None, [rng.choice([*NAMED_ARMS, 0, 1, "none"]), rng.choice(shares)]]
        return {"floor": rng.choice(shares), "holdback": rng.choice(shares), "control": rng.choice(controls)}

    # ------------------------------------------------------------------ requests

    def _valid_request(self) -> tuple[str, str, object]:
        """Return method, path and body (an object, bytes or None) of a request that the service may accept."""
        rng, name = self._random, self._stream()
        path = f"/v1/streams/{name}"
        count = rng.choice([0, 1, 3, 20]) if rng.random() < 0.99 else 1001
        other = f"/v1/streams/n{rng.randrange(400)}"  # streams that may be retired
        export = f"format={rng.choice(['ndjson', 'ndjson', 'parquet'])}&after={rng.choice([0, 5, 10**6])}"
        pages = ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs.css"]
        files = ["/", "/dashboard/app.js", "/dashboard/style.css", "/dashboard/none"]
        kinds: dict[Callable[[], tuple[str, str, object]], int] = {  # with the weight of each
            lambda: ("POST", f"{path}/decisions", self._decision()): 30,
            lambda: ("POST", f"{path}/rewards", self._reward(name)): 20,
            lambda: ("POST", f"{path}/decisions/batch", {"decisions": [self._decision() for _ in range(count)]}): 6,
            lambda: ("POST", f"{path}/rewards/batch", {"rewards": [self._reward(name) for _ in range(count)]}): 6,
            lambda: ("POST", f"{path}/observations", {"observation": self._observation()} | self._time()): 8,
            lambda: ("POST", f"{path}/preview", self._decision()): 4,
            lambda: ("GET", f"{path}/forecast?horizon={rng.choice([1, 2, 20, 0, -1, 'x', 10**9])}", None): 3,
            lambda: ("POST", "/v1/streams", self._spec()): 4,
            lambda: ("GET", f"/v1/streams?limit={rng.choice([1, 5, 1000, 0, -1])}&after={name}", None): 2,
            lambda: ("GET", path, None): 4,
            lambda: ("DELETE", other, None): 1,
            lambda: ("POST", f"{other}/arms", {"arm": rng.choice([None, "new", "low"])}): 1,
            lambda: ("DELETE", f"{other}/arms/{quote(rng.choice(NAMED_ARMS), safe='')}", None): 1,
            lambda: ("PUT", f"{rng.choice([path, other])}/guardrails", self._guardrails()): 2,
            lambda: ("GET", f"{path}/guardrails", None): 1,
            lambda: ("POST", f"{path}/snapshot", None): 1,
            lambda: ("GET", f"{path}/journal?{export}", None): 1,
            lambda: ("POST", "/v1/journal", self._journal()): 1,
            lambda: ("GET", rng.choice(["/v1/overview", f"{path}/series?points=20", f"{path}/health"]), None): 2,
            lambda: ("GET", rng.choice(pages), None): 2,
            lambda: ("GET", rng.choice(files), None): 2,
        }
        return rng.choices(list(kinds), list(kinds.values()))[0]()

    def _journal(self) -> bytes:
        """Return an exported journal under a new name, sometimes cut off or with a line of garbage."""
        rng = self._random
        if not self._exports or rng.random() < 0.3:
            return rng.choice([b"x", b"{}\n", b"PAR1", b"PAR1garbagePAR1", b"\x00" * 100, b"[]\n[]\n", b"null\n"])
        lines = rng.choice(self._exports).splitlines()
        self._imported += 1
        lines = [line.replace(b'"stream":"s', b'"stream":"i%d-s' % self._imported, 1) for line in lines]
        kind = rng.randrange(4)
        if kind == 1:
            lines = lines[: rng.randrange(len(lines) + 1)]
        elif kind == 2:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(ODD_TEXT))
        elif kind == 3:
            at = rng.randrange(len(lines))
            lines[at] = json.dumps(self._mutated(json.loads(lines[at]))).encode()
        return b"\n".join(lines) + b"\n"

    def _mutated(self, value: object) -> object:
        """Replace, remove or add one part of a JSON value, at any depth."""
        rng = self._random
        if isinstance(value, dict) and value and rng.random() < 0.9:
            key = rng.choice(list(value))
            change = rng.random()
            if change < 0.1:
                return {name: part for name, part in value.items() if name != key}
            if change < 0.2:
                return value | {rng.choice(["extra", "", "\x00", "name"]): rng.choice(ODD_VALUES)}
            return value | {key: self._mutated(value[key])}
        if isinstance(value, list) and value and rng.random() < 0.7:
            at = rng.randrange(len(value))
            return [*value[:at], self._mutated(value[at]), *value[at + 1 :]]
        return rng.choice(ODD_VALUES)

    def _bytes(self, body: object) -> bytes:
        """Encode a body as JSON, and break the text sometimes."""
        rng = self._random
        if body is None or isinstance(body, bytes):
            return body or b""
        if rng.random() < 0.25:
            body = self._mutated(body)
        data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        draw = rng.random()
        if draw < 0.02:
            return data[: rng.randrange(len(data) + 1)]
        if draw < 0.05:
            at = rng.randrange(len(data))
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        if draw < 0.08:
            return rng.choice(ODD_TEXT)
        if draw < 0.09 and b":" in data:  # the same key twice
            return data[:-1] + b", " + data[1:]
        return data

    def _headers(self) -> list[tuple[bytes, bytes]]:
        rng = self._random
        token = self._tokens["admin"].encode()
        if rng.random() < 0.06:
            token = rng.choice([
                b"", b"x", b"\xff\xfe", token[:-1], token + b"a", token.swapcase(), b"a" * rng.choice(HEADER_BYTES),
                *(one.encode() for one in self._tokens.values()),
            ])  # fmt: skip
        scheme = b"Bearer " if rng.random() < 0.98 else rng.choice([b"Basic ", b"", b"bearer  ", b"Bearer\t"])
        headers = [(b"Host", b"localhost"), (b"Authorization", scheme + token)]
        if rng.random() < 0.01:
            headers.pop()
        if rng.random() < 0.05:
            headers.append(rng.choice(ODD_HEADERS))
        return headers

    def _request(self) -> tuple[bytes, str]:
        """Return the bytes of the next request, and its method."""
        rng = self._random
        method, path, body = self._valid_request()
        if rng.random() < 0.03:
            method = rng.choice(METHODS)
        if rng.random() < 0.04:
            path = self._broken_path(path)
        data, headers = self._bytes(body), self._headers()
        lengths = [(b"Content-Length", b"%d" % len(data))] if data or method == "POST" else []
        if data and rng.random() < 0.03:
            chunks = [data[: len(data) // 2], data[len(data) // 2 :]]
            data = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks if chunk) + b"0\r\n\r\n"
            lengths = [(b"Transfer-Encoding", b"chunked")]
        elif rng.random() < 0.005:
            bad = [b"-1", b"x", b"1e3", b"99999999999999999999999", b"", b"0x10", b"+1"]
            lengths = [(b"Content-Length", rng.choice(bad))]
        lines = b"".join(b"%s: %s\r\n" % pair for pair in headers + lengths)
        version = (
            b"HTTP/1.1"
            if rng.random() < 0.99
            else rng.choice([b"HTTP/1.0", b"HTTP/9.9", b"http/1.1", b"", b"HTTP/2.0"])
        )
        request = b"%s %s %s\r\n%s\r\n%s" % (method.encode(), path.encode("latin-1", "replace"), version, lines, data)
        if rng.random() < 0.002:
            at = rng.randrange(len(request) - len(data))
            request = request[:at] + bytes([rng.randrange(256)]) + request[at:]
        return request, method

    def _broken_path(self, path: str) -> str:
        rng = self._random
        base, _, query = path.partition("?")
        odd_query = "&".join(f"{name}={quote(str(rng.choice(ODD_VALUES))[:200])}" for name in QUERY)
        return rng.choice(
            [
                base + rng.choice(ODD_ENDINGS),
                base.replace("s1", rng.choice(ODD_NAMES)),
                f"{base}?{query}&{query}&limit=x&after=%00&points=1e9&coordinate=-1&format=csv",
                f"{base}?{odd_query}",
                "http://other/" + base,
                "http://other" + base,
                rng.choice(ODD_PATHS),
            ]
        )

    # ------------------------------------------------------------------ sending

    def _send(self, request: bytes, method: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send a request and return status, headers and body. The status is 0 if the service closed the connection."""
        if self._connection is None:
            self._connection = socket.create_connection(self._address, timeout=TIMEOUT)
        kept = False
        try:
            self._connection.sendall(request)
            with http.client.HTTPResponse(self._connection, method=method) as answer:
                answer.begin()
                body = answer.read()
                kept = not answer.will_close
                return answer.status, answer.headers, body
        finally:
            if not kept:
                self._close()

    def run(self, count: int, progress: Callable[[Report], None] = lambda report: None) -> Report:
        """Send `count` requests and return the report."""
        try:
            return self._run(count, progress)
        finally:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, count: int, progress: Callable[[Report], None]) -> Report:
        report = self.report
        for number in range(count):
            request, method = self._request()
            fresh, began = self._connection is None, time.monotonic()
            try:
                status, headers, body = self._send(request, method)
            except TimeoutError:
                report.faults.append(f"request {number} hangs: {request[:2000]!r}")
                report.statuses["hangs"] += 1
                continue
            except (http.client.HTTPException, ConnectionError) as error:
                # A connection that the service has closed after an invalid request is found only now.
                report.statuses["connection closed"] += 1
                if fresh and b" HTTP/1.1\r\n" in request[:4000] and isinstance(error, ConnectionRefusedError):
                    report.faults.append(f"request {number}: the service is gone: {request[:2000]!r}")
                    return report
                continue
            took = time.monotonic() - began
            report.statuses[str(status)] += 1
            line = request.split(b"\r\n", 1)[0][:120].decode("latin-1")
            if took > report.slowest:
                report.slowest, report.slowest_request = took, line
            if status >= 500 and not (status in EXPECTED_5XX and headers.get("retry-after")):
                report.faults.append(f"request {number} got {status} {body[:300]!r}: {request[:2000]!r}")
            self._remember(method, line, status, body)
            if number % 5_000 == 4_999:
                progress(report)
        return report

    def _remember(self, method: str, line: str, status: int, body: bytes) -> None:
        """Keep ids of decisions, for rewards, and exports, for imports."""
        if status != 200 or method == "HEAD":
            return
        if "/decisions" in line and body.startswith(b'{"'):
            found = json.loads(body)
            for one in found.get("results", [found]):
                if "id" in one:
                    recent = self._decisions.setdefault(line.split("/")[3], [])
                    recent.append(one["id"])
                    del recent[:-50]
        elif "/journal?format=ndjson&after=0" in line and len(body) < 50_000:
            self._exports = [*self._exports[-9:], body]


def make_streams(service: Served, token: str) -> None:
    """Create the streams that the requests are about."""
    agents = ["ts-pco", "random", "adaptive", "lag-ts", "meb", "hmm-ts"]
    parts = urlsplit(service.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=TIMEOUT)
    for number in range(STREAMS):
        spec = {
            "name": f"s{number}",
            "observed": ["x", "y"] if number % 2 else 2,
            "arms": NAMED_ARMS if number % 3 else 3,
            "agent": agents[number % len(agents)],
            "seed": number,
        }
        if number % 2:
            spec["step"] = 60
        if number % 4 == 0:
            spec |= {"reward_wait": 0.05, "default_reward": 0.5, "late_rewards": "fold"}
        connection.request("POST", "/v1/streams", json.dumps(spec), {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 201, body
    connection.close()


def tracebacks(log: str) -> list[str]:
    """Return the last lines of every traceback in a log."""
    found = re.findall(r"^Traceback .*\n(?:^ .*\n)+^\S.*\n", log, flags=re.MULTILINE)
    return ["the log has a traceback:\n" + "".join(trace.splitlines(keepends=True)[-7:]) for trace in found]


def fuzz(folder: Path, count: int, seed: int, progress: Callable[[Report], None] = lambda report: None) -> Report:
    """Start a service on SQLite in `folder`, send it `count` requests, and return the report."""
    scopes = {
        "admin": ["--scope", "admin"],
        "read": ["--scope", "read"],
        "one": ["--scope", "decide", "--stream", "s1"],
        "expired": ["--scope", "admin", "--expires", "0.000001"],
    }
    tokens = {name: run_here(folder, "token", "create", *scope).stdout.strip() for name, scope in scopes.items()}
    with serving(folder) as service:
        make_streams(service, tokens["admin"])
        fuzzer = Fuzzer(service.url, tokens, seed)
        report = fuzzer.run(count, progress)
        if service.process.poll() is not None:
            report.faults.append(f"the service ended with {service.process.returncode}")
        elif service.stop() != 0:
            report.faults.append(f"the service stopped with {service.process.returncode}")
        report.faults += tracebacks(service.text)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="Send random requests to a service that this command starts.")
    parser.add_argument("--requests", type=float, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the service is ended too
    with tempfile.TemporaryDirectory() as folder:
        report = fuzz(Path(folder), int(given.requests), given.seed, lambda one: print(one, flush=True))
    print(report)
    for fault in report.faults:
        print(fault)
    raise SystemExit(bool(report.faults))


if __name__ == "__main__":
    main()
