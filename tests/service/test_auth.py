"""Tokens: which requests they allow, when they end, and that their secrets are neither stored nor printed."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from service.served import Served, run_command, run_here, serving

from halfseen.errors import HalfseenError
from halfseen.journal.journal import Token
from halfseen.service.auth import Authorizer, is_loopback, new_token
from halfseen.service.errors import ServiceError


def token(folder: Path, *arguments: str) -> str:
    made = run_here(folder, "token", "create", *arguments)
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


DECISION = {"observation": [1.0]}
NEW = {"name": "new", "observed": 1, "arms": 2}


@pytest.mark.parametrize(
    ("owner", "method", "path", "body", "status"),
    [
        ("read", "GET", "/v1/streams", None, 200),
        ("read", "GET", "/v1/streams/one", None, 200),
        ("read", "GET", "/v1/streams/one/journal", None, 200),
        ("read", "GET", "/metrics", None, 200),
        ("read", "POST", "/v1/streams/one/decisions", DECISION, 403),
        ("read", "POST", "/v1/streams/one/rewards", {"decision": "x", "value": 1}, 403),
        ("read", "POST", "/v1/streams", NEW, 403),
        ("read", "DELETE", "/v1/streams/one", None, 403),
        ("read", "POST", "/v1/streams/one/arms", {}, 403),
        ("read", "POST", "/v1/journal", None, 403),
        ("decide", "POST", "/v1/streams/one/decisions", DECISION, 200),
        ("decide", "POST", "/v1/streams/one/decisions/batch", {"decisions": [DECISION]}, 200),
        ("decide", "GET", "/v1/streams/one", None, 200),  # clients that decide need the order of the arms
        ("decide", "GET", "/v1/streams", None, 403),
        ("decide", "GET", "/v1/streams/one/journal", None, 403),
        ("decide", "GET", "/v1/streams/one/series", None, 403),
        ("decide", "GET", "/v1/overview", None, 403),
        ("decide", "DELETE", "/v1/streams/one", None, 403),
        ("decide", "DELETE", "/v1/streams/one/arms/1", None, 403),
        ("admin", "POST", "/v1/streams/two/decisions", DECISION, 200),
        ("admin", "GET", "/v1/streams/two", None, 200),
        ("one", "POST", "/v1/streams/one/decisions", DECISION, 200),
        ("one", "GET", "/v1/streams/one", None, 200),
        ("one", "POST", "/v1/streams/two/decisions", DECISION, 403),
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
        (None, "POST", "/v1/streams/one/decisions", DECISION, 401),
        (None, "POST", "/v1/streams", NEW, 401),
        (None, "GET", "/v1/streams/one/journal", None, 401),
        (None, "GET", "/metrics", None, 401),
        (None, "GET", "/healthz", None, 200),
        (None, "GET", "/readyz", None, 200),
        (None, "GET", "/docs", None, 200),
    ],
)
def test_each_scope_allows_its_requests(
    guarded: Served, tokens: dict[str, str], owner: str | None, method: str, path: str, body: object, status: int
) -> None:
    answer = ask(guarded, method, path, None if owner is None else tokens[owner], json=body)
    assert answer.status_code == status, answer.text
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == "unauthorised"
    if status == 403:
        assert answer.json()["error"]["code"] == "forbidden"


def test_every_route_except_health_checks_requires_a_token(guarded: Served) -> None:
    """The routes come from the OpenAPI description, so that new routes are tested too."""
    paths = ask(guarded, "GET", "/openapi.json").json()["paths"]
    assert len(paths) > 8
    for path, methods in paths.items():
        for method in methods:
            status = ask(guarded, method.upper(), path.replace("{name}", "one").replace("{arm}", "1")).status_code
            assert status == (200 if path in ("/healthz", "/readyz") else 401), (method, path)


def test_a_token_for_one_stream_lists_only_that_stream(guarded: Served, tokens: dict[str, str]) -> None:
    found = ask(guarded, "GET", "/v1/streams", tokens["one"]).json()["streams"]
    assert [view["name"] for view in found] == ["one"]


@pytest.mark.parametrize("change", [lambda t: t[:-1] + "!", lambda t: t[:-1], lambda t: t + "x", lambda t: t.upper(),
                                    lambda t: "halfseen__", lambda t: "x", lambda t: "é", lambda t: t.partition("_")[2],
                                    lambda t: "other_" + t.partition("_")[2]])  # fmt: skip
def test_a_token_that_is_almost_right_is_refused(guarded: Served, tokens: dict[str, str], change) -> None:  # type: ignore[no-untyped-def]
    value = b"Bearer " + change(tokens["admin"]).encode()
    answer = httpx.get(guarded.url + "/v1/streams", headers={"authorization": value})
    assert answer.status_code == 401
    assert httpx.get(guarded.url + "/v1/streams", headers={"authorization": "Basic eDp5"}).status_code == 401


def test_a_token_can_be_created_and_revoked_while_the_service_runs(guarded: Served, folder: Path) -> None:
    time.sleep(0.6)
    secret = token(folder, "--scope", "read", "--name", "for a while")
    assert ask(guarded, "GET", "/v1/streams", secret).status_code == 200
    token_id = secret.split("_")[1]
    listed = run_here(folder, "token", "list")
    assert token_id in listed.stdout
    assert "for a while" in listed.stdout
    assert secret.split("_", 2)[2] not in listed.stdout
    assert run_here(folder, "token", "revoke", token_id).returncode == 0
    end = time.monotonic() + 10
    while ask(guarded, "GET", "/v1/streams", secret).status_code == 200:
        assert time.monotonic() < end, "still accepted ten seconds after it was revoked"
        time.sleep(0.1)
    assert "revoked" in ask(guarded, "GET", "/v1/streams", secret).json()["error"]["message"]
    again = run_here(folder, "token", "revoke", token_id)
    assert again.returncode == 2
    assert len(again.stderr.splitlines()) == 1


def test_secrets_are_neither_stored_nor_printed(guarded: Served, folder: Path, tokens: dict[str, str]) -> None:
    for secret in tokens.values():
        ask(guarded, "GET", "/v1/streams", secret)
    secrets = [secret.split("_", 2)[2] for secret in tokens.values()]
    stored = b"".join(path.read_bytes() for path in folder.iterdir())
    for secret in secrets:
        assert secret.encode() not in stored
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
def test_invalid_options_of_tokens_are_refused(tmp_path: Path, arguments: list[str], word: str) -> None:
    done = run_here(tmp_path, "token", "create", *arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "no tokens" in run_here(tmp_path, "token", "list").stdout


def test_creating_a_token_for_a_stream_that_does_not_exist_prints_a_note(tmp_path: Path) -> None:
    arguments = ("token", "create", "--scope", "decide")
    for streams, noted in (((), False), (("--stream", "nosuch"), True)):
        done = run_command(tmp_path, *arguments, *streams)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("halfseen_")
        assert ("These streams do not exist yet: nosuch" in done.stderr.splitlines()) is noted
    admin = run_here(tmp_path, "token", "create", "--scope", "admin").stdout.strip()
    with serving(tmp_path) as service:
        made = {"name": "nosuch", "observed": 1, "arms": 2, "agent": "random"}
        assert ask(service, "POST", "/v1/streams", admin, json=made).status_code == 201
        assert "do not exist" not in run_here(tmp_path, *arguments, "--stream", "nosuch").stderr


# --------------------------------------------------------------------- the authorizer without a service


def authorizer_with(stored: list[Token], **options: object) -> tuple[Authorizer, list[float]]:
    now = [1_000_000.0]

    async def load() -> list[Token]:
        return list(stored)

    authorizer = Authorizer(load, clock=lambda: now[0], **{"open_at_first": False, **options})  # type: ignore[arg-type]
    asyncio.run(authorizer.refresh())
    return authorizer, now


def bearer(secret: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"127.0.0.1:8400"), (b"authorization", b"Bearer " + secret.encode())]


def test_a_token_expires_on_time() -> None:
    secret, record = new_token(["read"], days=1, now=1_000_000.0)
    authorizer, now = authorizer_with([record])
    assert authorizer.check(bearer(secret), "read") == record
    now[0] += 86_399.9
    authorizer.check(bearer(secret), "read")
    now[0] += 0.1
    with pytest.raises(ServiceError, match="expired"):
        authorizer.check(bearer(secret), "read")


def test_the_rate_limit_is_per_token() -> None:
    (secret, record), (other, other_record) = new_token(["read"]), new_token(["read"])
    authorizer, now = authorizer_with([record, other_record], rate=3.0)
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


def test_tokens_are_required_as_soon_as_one_exists() -> None:
    stored: list[Token] = []
    authorizer, _ = authorizer_with(stored, open_at_first=True)
    assert authorizer.check([(b"host", b"localhost:8400")], "admin") is None
    stored.append(new_token(["read"], days=1, now=0.0)[1])  # an expired token
    asyncio.run(authorizer.refresh())
    with pytest.raises(ServiceError, match="token"):
        authorizer.check([(b"host", b"localhost:8400")], "read")


@pytest.mark.parametrize(
    ("headers", "ok"),
    [
        ([(b"host", b"127.0.0.1:8400")], True),
        ([(b"host", b"localhost")], True),
        ([(b"host", b"127.0.0.2:8400"), (b"origin", b"http://127.0.0.2:8400")], True),
        ([(b"host", b"192.168.0.1:8400")], False),
        ([(b"host", b"127.0.0.2.evil.example")], False),
        ([(b"host", b"[::1]:8400")], True),
        ([(b"host", b"localhost:8400"), (b"origin", b"http://localhost:8400")], True),
        ([(b"host", b"evil.example:8400")], False),  # DNS rebinding
        ([(b"host", b"127.0.0.1.evil.example")], False),
        ([(b"host", b"localhost:8400"), (b"origin", b"http://evil.example")], False),
        ([(b"host", b"localhost:8400"), (b"origin", b"null")], False),
        ([(b"host", b"localhost:8400"), (b"origin", b"http://localhost:9999")], False),
        ([(b"host", b"[:")], False),
    ],
)
def test_without_tokens_requests_of_other_sites_are_refused(headers: list[tuple[bytes, bytes]], ok: bool) -> None:
    authorizer, _ = authorizer_with([], open_at_first=True)
    if ok:
        assert authorizer.check(headers, "admin") is None
    else:
        with pytest.raises(ServiceError) as refused:
            authorizer.check(headers, "admin")
        assert refused.value.status == 403


def test_loopback_addresses_are_recognised() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "127.evil.example", "example.com", "")))


def test_a_token_needs_a_scope() -> None:
    with pytest.raises(HalfseenError, match="scope"):
        new_token([])


def test_commands_that_fail_or_only_read_do_not_create_a_database(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.ndjson"
    wrong.write_text("not an event\n")
    assert "no tokens" in run_here(tmp_path, "token", "list").stdout
    for arguments in (["token", "revoke", "x"], ["import", wrong.name]):
        done = run_here(tmp_path, *arguments)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [wrong]
