"""Tokens: who is let in, to what, until when; and that nothing secret is kept or said."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from service.served import Served, run_command, serving

from halfseen.errors import HalfseenError
from halfseen.journal.journal import Token
from halfseen.service.auth import Authorizer, is_loopback, new_token
from halfseen.service.errors import ServiceError


def token(folder: Path, *arguments: str) -> str:
    made = run_command(folder, "token", "create", *arguments)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, str]:
    return {
        "admin": token(folder, "--scope", "admin"),
        "read": token(folder, "--scope", "read"),
        "decide": token(folder, "--scope", "decide"),
        "shop": token(folder, "--scope", "decide", "--stream", "one"),
        "one": token(folder, "--scope", "read", "--scope", "decide", "--stream", "one", "--expires", "30"),
        "maker": token(folder, "--scope", "admin", "--stream", "one"),
        "expired": token(folder, "--scope", "admin", "--expires", "0.000001"),
    }


@pytest.fixture(scope="module")
def guarded(folder: Path, tokens: dict[str, str]) -> Iterator[Served]:
    with serving(folder) as service:
        spec = {"observed": 1, "arms": 2, "agent": "random"}
        for name in ("one", "two"):
            made = ask(service, "POST", "/v1/streams", tokens["admin"], json={"name": name, **spec})
            assert made.status_code == 201, made.text
        yield service


def ask(service: Served, method: str, path: str, secret: str | None = None, **rest: object) -> httpx.Response:
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    return httpx.request(method, service.url + path, headers=headers, timeout=30, **rest)  # type: ignore[arg-type]


ASKED = {"observation": [1.0]}
NEW = {"name": "new", "observed": 1, "arms": 2}


@pytest.mark.parametrize(
    ("who", "method", "path", "body", "status"),
    [
        ("read", "GET", "/v1/streams", None, 200),
        ("read", "GET", "/v1/streams/one", None, 200),
        ("read", "GET", "/v1/streams/one/journal", None, 200),
        ("read", "GET", "/metrics", None, 200),
        ("read", "POST", "/v1/streams/one/decisions", ASKED, 403),
        ("read", "POST", "/v1/streams/one/rewards", {"decision": "x", "value": 1}, 403),
        ("read", "POST", "/v1/streams", NEW, 403),
        ("read", "DELETE", "/v1/streams/one", None, 403),
        ("read", "POST", "/v1/streams/one/arms", {}, 403),
        ("read", "POST", "/v1/journal", None, 403),
        ("decide", "POST", "/v1/streams/one/decisions", ASKED, 200),
        ("decide", "POST", "/v1/streams/one/decisions/batch", {"decisions": [ASKED]}, 200),
        ("decide", "GET", "/v1/streams/one", None, 200),  # whose arms are in the order of the answers' lists
        ("decide", "GET", "/v1/streams", None, 403),
        ("decide", "GET", "/v1/streams/one/journal", None, 403),
        ("decide", "GET", "/v1/streams/one/series", None, 403),
        ("decide", "GET", "/v1/overview", None, 403),
        ("decide", "DELETE", "/v1/streams/one", None, 403),
        ("decide", "DELETE", "/v1/streams/one/arms/1", None, 403),
        ("admin", "POST", "/v1/streams/two/decisions", ASKED, 200),
        ("admin", "GET", "/v1/streams/two", None, 200),
        ("one", "POST", "/v1/streams/one/decisions", ASKED, 200),
        ("one", "GET", "/v1/streams/one", None, 200),
        ("one", "POST", "/v1/streams/two/decisions", ASKED, 403),
        ("one", "POST", "/v1/streams/two/rewards/batch", {"rewards": []}, 403),
        ("one", "GET", "/v1/streams/two", None, 403),
        ("one", "GET", "/v1/streams/two/journal", None, 403),
        ("one", "GET", "/metrics", None, 403),
        ("shop", "GET", "/v1/streams/one", None, 200),
        ("shop", "GET", "/v1/streams/two", None, 403),
        ("maker", "POST", "/v1/streams", NEW, 403),
        ("maker", "POST", "/v1/journal", None, 403),
        ("expired", "GET", "/v1/streams", None, 401),
        (None, "GET", "/v1/streams", None, 401),
        (None, "POST", "/v1/streams/one/decisions", ASKED, 401),
        (None, "POST", "/v1/streams", NEW, 401),
        (None, "GET", "/v1/streams/one/journal", None, 401),
        (None, "GET", "/metrics", None, 401),
        (None, "GET", "/healthz", None, 200),
        (None, "GET", "/readyz", None, 200),
        (None, "GET", "/docs", None, 200),
    ],
)
def test_each_scope_opens_its_own_doors(
    guarded: Served, tokens: dict[str, str], who: str | None, method: str, path: str, body: object, status: int
) -> None:
    answer = ask(guarded, method, path, None if who is None else tokens[who], json=body)
    assert answer.status_code == status, answer.text
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "unauthorised"
    if status == 403:
        assert answer.json()["error"]["code"] == "forbidden"


def test_every_route_but_the_open_ones_wants_a_token(guarded: Served) -> None:
    """Walked over the description, so that a route added later is not forgotten."""
    paths = ask(guarded, "GET", "/openapi.json").json()["paths"]
    assert len(paths) > 8
    for path, methods in paths.items():
        for method in methods:
            status = ask(guarded, method.upper(), path.replace("{name}", "one").replace("{arm}", "1")).status_code
            assert status == (200 if path in ("/healthz", "/readyz") else 401), (method, path)


def test_a_token_for_one_stream_sees_that_one(guarded: Served, tokens: dict[str, str]) -> None:
    found = ask(guarded, "GET", "/v1/streams", tokens["one"]).json()["streams"]
    assert [view["name"] for view in found] == ["one"]


@pytest.mark.parametrize("change", [lambda t: t[:-1] + "!", lambda t: t[:-1], lambda t: t + "x", lambda t: t.upper(),
                                    lambda t: "halfseen__", lambda t: "x", lambda t: "é", lambda t: t.partition("_")[2],
                                    lambda t: "other_" + t.partition("_")[2]])  # fmt: skip
def test_a_token_that_is_nearly_right_is_wrong(guarded: Served, tokens: dict[str, str], change) -> None:  # type: ignore[no-untyped-def]
    value = b"Bearer " + change(tokens["admin"]).encode()
    answer = httpx.get(guarded.url + "/v1/streams", headers={"authorization": value})
    assert answer.status_code == 401
    assert httpx.get(guarded.url + "/v1/streams", headers={"authorization": "Basic eDp5"}).status_code == 401


def test_a_token_made_and_revoked_while_the_service_runs(guarded: Served, folder: Path) -> None:
    time.sleep(0.6)
    secret = token(folder, "--scope", "read", "--name", "for a while")
    assert ask(guarded, "GET", "/v1/streams", secret).status_code == 200
    identity = secret.split("_")[1]
    listed = run_command(folder, "token", "list")
    assert identity in listed.stdout
    assert "for a while" in listed.stdout
    assert secret.split("_", 2)[2] not in listed.stdout
    assert run_command(folder, "token", "revoke", identity).returncode == 0
    until = time.monotonic() + 10
    while ask(guarded, "GET", "/v1/streams", secret).status_code == 200:
        assert time.monotonic() < until, "still let in ten seconds after it was revoked"
        time.sleep(0.1)
    assert "revoked" in ask(guarded, "GET", "/v1/streams", secret).json()["error"]["message"]
    again = run_command(folder, "token", "revoke", identity)
    assert again.returncode == 2
    assert len(again.stderr.splitlines()) == 1


def test_no_secret_is_kept_or_said(guarded: Served, folder: Path, tokens: dict[str, str]) -> None:
    for secret in tokens.values():
        ask(guarded, "GET", "/v1/streams", secret)
    hidden = [secret.split("_", 2)[2] for secret in tokens.values()]
    kept = b"".join(path.read_bytes() for path in folder.iterdir())
    for secret in hidden:
        assert secret.encode() not in kept
        assert secret not in guarded.text
    with sqlite3.connect(folder / "halfseen.db") as database:
        assert all(len(row[0]) == 32 for row in database.execute("SELECT sha256 FROM tokens"))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--scope", "everything"], "scope"),
        ([], "scope"),
        (["--scope", "read", "--expires", "0"], "expires"),
        (["--scope", "read", "--expires", "-3"], "expires"),
        (["--scope", "read", "--stream", "a/b"], "stream"),
    ],
)
def test_bad_tokens_are_not_made(tmp_path: Path, arguments: list[str], word: str) -> None:
    done = run_command(tmp_path, "token", "create", *arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "no tokens" in run_command(tmp_path, "token", "list").stdout


def test_a_token_for_a_stream_that_is_not_there_is_made_and_said(tmp_path: Path) -> None:
    arguments = ("token", "create", "--scope", "decide")
    for streams, said in (((), False), (("--stream", "nosuch"), True)):
        done = run_command(tmp_path, *arguments, *streams)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("halfseen_")
        assert ("stream: got nosuch; there is no such stream yet" in done.stderr.splitlines()) is said
    admin = run_command(tmp_path, "token", "create", "--scope", "admin").stdout.strip()
    with serving(tmp_path) as service:
        made = {"name": "nosuch", "observed": 1, "arms": 2, "agent": "random"}
        assert ask(service, "POST", "/v1/streams", admin, json=made).status_code == 201
        assert "no such stream" not in run_command(tmp_path, *arguments, "--stream", "nosuch").stderr


# --------------------------------------------------------------------- the authorizer by itself


def authorizer_with(kept: list[Token], **options: object) -> tuple[Authorizer, list[float]]:
    now = [1_000_000.0]

    async def load() -> list[Token]:
        return list(kept)

    authorizer = Authorizer(load, clock=lambda: now[0], **{"open_at_first": False, **options})  # type: ignore[arg-type]
    asyncio.run(authorizer.refresh())
    return authorizer, now


def bearer(secret: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"127.0.0.1:8400"), (b"authorization", b"Bearer " + secret.encode())]


def test_a_token_ends_at_its_time() -> None:
    secret, kept = new_token(["read"], days=1, now=1_000_000.0)
    authorizer, now = authorizer_with([kept])
    assert authorizer.check(bearer(secret), "read") == kept
    now[0] += 86_399.9
    authorizer.check(bearer(secret), "read")
    now[0] += 0.1
    with pytest.raises(ServiceError, match="expired"):
        authorizer.check(bearer(secret), "read")


def test_the_rate_is_of_each_token() -> None:
    (secret, kept), (other, kept_too) = new_token(["read"]), new_token(["read"])
    authorizer, now = authorizer_with([kept, kept_too], rate=3.0)
    for _ in range(3):
        authorizer.check(bearer(secret), "read")
    with pytest.raises(ServiceError) as refused:
        authorizer.check(bearer(secret), "read")
    assert (refused.value.status, refused.value.code) == (429, "too_many")
    authorizer.check(bearer(other), "read")
    now[0] += 1 / 3 + 1e-6
    authorizer.check(bearer(secret), "read")
    with pytest.raises(ServiceError):
        authorizer.check(bearer(secret), "read")


def test_an_open_service_closes_with_its_first_token() -> None:
    kept: list[Token] = []
    authorizer, _ = authorizer_with(kept, open_at_first=True)
    assert authorizer.check([(b"host", b"localhost:8400")], "admin") is None
    kept.append(new_token(["read"], days=1, now=0.0)[1])  # long expired
    asyncio.run(authorizer.refresh())
    with pytest.raises(ServiceError, match="token"):
        authorizer.check([(b"host", b"localhost:8400")], "read")


@pytest.mark.parametrize(
    ("headers", "ok"),
    [
        ([(b"host", b"127.0.0.1:8400")], True),
        ([(b"host", b"localhost")], True),
        ([(b"host", b"[::1]:8400")], True),
        ([(b"host", b"localhost:8400"), (b"origin", b"http://localhost:8400")], True),
        ([(b"host", b"evil.example:8400")], False),  # a name bent to point here
        ([(b"host", b"127.0.0.1.evil.example")], False),
        ([(b"host", b"localhost:8400"), (b"origin", b"http://evil.example")], False),
        ([(b"host", b"localhost:8400"), (b"origin", b"null")], False),
        ([(b"host", b"localhost:8400"), (b"origin", b"http://localhost:9999")], False),
        ([(b"host", b"[:")], False),
    ],
)
def test_an_open_service_hears_no_foreign_pages(headers: list[tuple[bytes, bytes]], ok: bool) -> None:
    authorizer, _ = authorizer_with([], open_at_first=True)
    if ok:
        assert authorizer.check(headers, "admin") is None
    else:
        with pytest.raises(ServiceError) as refused:
            authorizer.check(headers, "admin")
        assert refused.value.status == 403


def test_what_counts_as_this_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "127.evil.example", "example.com", "")))


def test_tokens_of_no_known_scope_are_refused() -> None:
    with pytest.raises(HalfseenError, match="scope"):
        new_token([])


def test_looking_makes_no_database(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.ndjson"
    wrong.write_text("no record\n")
    assert "no tokens" in run_command(tmp_path, "token", "list").stdout
    for arguments in (["token", "revoke", "x"], ["import", wrong.name]):
        done = run_command(tmp_path, *arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [wrong]
