"""The replies and errors of all routes, over a real socket."""

from __future__ import annotations

import json
import math
import re
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from service.served import Served, metrics, serving


def make(http: httpx.Client, name: str, **spec: object) -> dict[str, object]:
    body = {"name": name, "observed": 2, "arms": ["low", "high"], "agent": "ts-pco", "seed": 3} | spec
    answer = http.post("/v1/streams", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def assert_refused(answer: httpx.Response, status: int, code: str, *words: str) -> None:
    """Check the error reply, which has the same form for all errors."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["error"]
    assert sorted(body["error"]) == ["code", "message"]
    assert body["error"]["code"] == code
    message = body["error"]["message"]
    assert "\n" not in message
    assert ": " in message or message.endswith("."), message  # an argument and what was expected, or a sentence
    for word in words:
        assert word in message, message


def test_a_stream_from_creation_to_retirement(http: httpx.Client) -> None:
    made = make(http, "life", observed=["price", "load"])
    assert made["name"] == "life"
    assert made["arms"] == ["low", "high"]
    assert make(http, "life", observed=["price", "load"]) == made  # repeating the request changes nothing
    assert_refused(http.post("/v1/streams", json={"name": "life", "observed": 3, "arms": 2}), 409, "conflict")

    first = http.post("/v1/streams/life/decisions", json={"observation": {"price": 0.5}}).json()
    assert sorted(first) == ["arm", "expected", "id", "propensities", "propensity", "repeated"]
    assert first["arm"] in ("low", "high")
    assert math.isclose(sum(first["propensities"]), 1.0)
    assert first["propensity"] == first["propensities"][["low", "high"].index(first["arm"])]
    assert len(first["expected"]) == 2

    rewarded = http.post("/v1/streams/life/rewards", json={"decision": first["id"], "value": 1.5})
    assert rewarded.json() == {"decision": first["id"], "value": 1.5, "how": "given", "folded": True, "repeated": False}
    again = http.post("/v1/streams/life/rewards", json={"decision": first["id"], "value": 1.5}).json()
    assert again["repeated"] is True
    assert_refused(http.post("/v1/streams/life/rewards", json={"decision": first["id"], "value": 2.0}), 409, "conflict")

    assert http.post("/v1/streams/life/arms", json={"arm": "mid/dle"}).json()["arms"] == ["low", "high", "mid/dle"]
    assert http.delete("/v1/streams/life/arms/mid%2Fdle").json()["active"] == ["low", "high"]
    assert http.post("/v1/streams/life/snapshot").status_code == 204
    shown = http.get("/v1/streams/life").json()
    assert (shown["decisions"], shown["rewards"], shown["retired"]) == (1, 1, False)
    assert "life" in [view["name"] for view in http.get("/v1/streams").json()["streams"]]
    assert http.delete("/v1/streams/life").json()["retired"] is True
    assert_refused(http.post("/v1/streams/life/decisions", json={"observation": [0, 0]}), 409, "conflict")
    again = {"name": "life", "observed": ["price", "load"], "arms": ["low", "high"], "agent": "ts-pco", "seed": 3}
    message = "name: expected a new name, got 'life', which is a retired stream"
    assert_refused(http.post("/v1/streams", json=again), 409, "conflict", message)


def test_observations_and_time(http: httpx.Client) -> None:
    make(http, "timed", observed=["price", "load"], step=60)
    path = "/v1/streams/timed"
    assert http.get(path).json()["spec"]["step"] == 60
    first = {"observation": {"price": 0.5}, "time": "2026-01-01T00:00:00Z"}
    assert http.post(f"{path}/observations", json=first).json() == {"elapsed": 1}
    later = first | {"time": "2026-01-01T00:04:40Z"}
    assert http.post(f"{path}/observations", json=later).json() == {"elapsed": 5}
    assert_refused(http.post(f"{path}/observations", json=first), 422, "invalid", "time: expected a time that is not")
    for elapsed, word in ((-1, "elapsed"), (1.5, "elapsed"), ("2", "elapsed"), (10**13, "elapsed")):
        for route in ("observations", "decisions", "preview"):
            answer = http.post(f"{path}/{route}", json={"observation": [0, 0], "elapsed": elapsed})
            assert_refused(answer, 422, "invalid", word)
    assert_refused(http.post(f"{path}/observations", json={"observation": [0]}), 422, "invalid", "observation")
    assert_refused(http.post("/v1/streams/nobody/observations", json=first), 404, "not_found")
    make(http, "untimed")
    stamped = {"observation": [0, 0], "time": "2026-01-01T00:00:00Z"}
    assert_refused(http.post("/v1/streams/untimed/decisions", json=stamped), 422, "invalid", "the stream has no step")
    assert http.get(path).json()["decisions"] == 0
    assert http.get(path).json()["version"] == 3


def test_a_preview_is_the_next_decision(http: httpx.Client) -> None:
    make(http, "ahead")
    body = {"observation": [0.3, None], "elapsed": 2}
    preview = http.post("/v1/streams/ahead/preview", json=body).json()
    assert http.post("/v1/streams/ahead/preview", json=body).json() == preview
    made = http.post("/v1/streams/ahead/decisions", json=body).json()
    assert preview == {name: made[name] for name in ("arm", "propensity", "propensities", "expected")}


def test_a_forecast_has_one_entry_per_round_ahead(http: httpx.Client) -> None:
    make(http, "foreseen", agent="adaptive")
    found = http.get("/v1/streams/foreseen/forecast?horizon=3").json()
    assert found["arms"] == ["low", "high"]
    assert len(found["expected"]) == len(found["best_arm_probability"]) == len(found["context"]) == 3
    assert len(http.get("/v1/streams/foreseen/forecast").json()["expected"]) == 10
    for horizon in ("0", "-1", "1001", "x", "1.5"):
        answer = http.get(f"/v1/streams/foreseen/forecast?horizon={horizon}")
        assert_refused(answer, 422, "invalid", "horizon")
    make(http, "unforeseen")
    assert_refused(
        http.get("/v1/streams/unforeseen/forecast"), 422, "invalid", "no linear-Gaussian model of the context"
    )


def test_an_observation_is_a_list_or_an_object(http: httpx.Client) -> None:
    """Both forms of the same observation give the same decision in streams with the same seed."""
    for name in ("by-list", "by-feature"):
        make(http, name, observed=["price", "load"])
    for values, named in (([1.0, None], {"price": 1.0}), ([None, 2], {"load": 2, "price": None}), ([None, None], {})):
        one = http.post("/v1/streams/by-list/decisions", json={"observation": values}).json()
        other = http.post("/v1/streams/by-feature/decisions", json={"observation": named}).json()
        del one["id"], other["id"]
        assert one == other
    assert_refused(
        http.post("/v1/streams/by-list/decisions", json={"observation": {"prize": 1}}), 422, "invalid", "prize"
    )


def test_the_same_key_gives_the_same_decision(http: httpx.Client) -> None:
    make(http, "keyed")
    one = http.post("/v1/streams/keyed/decisions", json={"observation": [1, 2], "key": "k1"}).json()
    two = http.post("/v1/streams/keyed/decisions", json={"observation": [1, 2], "key": "k1"}).json()
    assert (one["repeated"], two["repeated"]) == (False, True)
    assert one["id"] == two["id"]
    assert http.get("/v1/streams/keyed").json()["decisions"] == 1


def test_only_available_arms_are_chosen(http: httpx.Client) -> None:
    make(http, "narrow", arms=5)
    for _ in range(5):
        body = {"observation": [1, 1], "available": [3]}
        answer = http.post("/v1/streams/narrow/decisions", json=body).json()
        assert answer["arm"] == 3
        assert answer["propensities"] == pytest.approx([0, 0, 0, 1, 0])
    assert_refused(
        http.post("/v1/streams/narrow/decisions", json={"observation": [1, 1], "available": [9]}), 422, "invalid"
    )


def test_a_bad_row_does_not_affect_the_other_rows_of_its_batch(http: httpx.Client) -> None:
    make(http, "batched")
    rows = [{"observation": [1, 2]}, {"observation": [1]}, {"observation": ["x", 1]}, 7, {"observation": [None, 1]}]
    results = http.post("/v1/streams/batched/decisions/batch", json={"decisions": rows}).json()["results"]
    assert ["error" in row for row in results] == [False, True, True, True, False]
    assert "observation[0]" in results[2]["error"]["message"]
    ids = [results[0]["id"], results[4]["id"]]
    rewards = [{"decision": ids[0], "value": 1}, {"decision": "nobody", "value": 1}, {"decision": ids[1], "value": 2}]
    results = http.post("/v1/streams/batched/rewards/batch", json={"rewards": rewards}).json()["results"]
    assert [row.get("decision") for row in results] == [ids[0], None, ids[1]]
    assert results[1]["error"]["code"] == "not_found"
    too_many = {"decisions": [{"observation": [1, 2]}] * 1001}
    assert_refused(http.post("/v1/streams/batched/decisions/batch", json=too_many), 413, "too_large", "1001", "1000")
    assert http.get("/v1/streams/batched").json()["decisions"] == 2


NOT_JSON = [
    b"", b"{", b"hello", b'{"observation": [1, NaN]}', b'{"observation": [1, Infinity]}',
    b'{"observation": [1, 2]} and more', b'{"observation": [1, 2], "key": "\xff"}',
]  # fmt: skip
INVALID = [
    b"[" * 100_000, b'{"observation": ' + b"[" * 100_000, b"[]", b"null", b"{}",
    b'{"observation": [1, 1e999]}', b'{"observation": [1, ' + 400 * b"9" + b"]}",
    b'{"observation": [true, 1]}', b'{"observation": ["1", 1]}', b'{"observation": [1, 2, 3]}',
    *(b'{"observation": [1, 2], ' + rest + b"}" for rest in (
        b'"colour": 1', b'"available": []', b'"available": ["no such"]',
        b'"key": ""', b'"key": "' + b"k" * 201 + b'"', b'"key": "a\\u0000b"',
    )),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [*((body, 400, "malformed") for body in NOT_JSON), *((body, 422, "invalid") for body in INVALID)],
)
def test_bad_bodies_are_refused_and_change_nothing(http: httpx.Client, body: bytes, status: int, code: str) -> None:
    make(http, "strict")
    before = http.get("/v1/streams/strict").json()
    assert_refused(http.post("/v1/streams/strict/decisions", content=body), status, code)
    assert http.get("/v1/streams/strict").json() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a/b"},
        {"name": ""},
        {"name": "x" * 101},
        {"observed": 0},
        {"observed": -1},
        {"observed": ["a", "a"]},
        {"arms": 0},
        {"arms": None},
        {"arms": ["a", "a"]},
        {"arms": ["a\u0000"]},
        {"agent": "nobody"},
        {"options": {"nothing": 1}},
        {"options": {"latent": [[[]]]}},
        {"seed": -1},
        {"seed": 2**70},
        {"reward_wait": -1},
        {"late_rewards": "perhaps"},
        {"late_rewards": "fold"},
        {"colour": "red"},
    ],
)
def test_bad_specifications_are_refused(http: httpx.Client, changes: dict[str, object]) -> None:
    assert_refused(http.post("/v1/streams", json={"name": "bad", "observed": 2, "arms": 2} | changes), 422, "invalid")
    assert_refused(http.post("/v1/streams", json={"name": "bad", "observed": 2}), 422, "invalid", "arms")
    assert http.get("/v1/streams/bad").status_code == 404


def test_error_messages_say_what_was_expected(http: httpx.Client) -> None:
    make(http, "wanted", arms=["low", "high", "mid"])
    http.delete("/v1/streams/wanted/arms/mid")
    spec = {"name": "not-wanted", "observed": 2, "arms": 2}
    for path, body, message in (
        ("", spec | {"late_rewards": "flod"}, "late_rewards: expected one of: record, fold, got 'flod'"),
        (
            "",
            spec | {"reward_wiat": 3},
            "body: there is no field 'reward_wiat'. Did you mean 'reward_wait'? The fields are: name, observed, arms, "
            "agent, options, seed, reward_wait, default_reward, late_rewards, guardrails, step",
        ),
        (
            "/wanted/decisions",
            {"observation": [1, 2], "avialable": ["low"]},
            "body: there is no field 'avialable'. Did you mean 'available'? "
            "The fields are: observation, available, key, costs, elapsed, time",
        ),
        (
            "/wanted/rewards",
            {"decision": "x", "value": 1, "zzz": 1},
            "body: there is no field 'zzz'. The fields are: decision, value",
        ),
        ("/wanted/decisions/batch", {"rows": []}, "body: there is no field 'rows'. The fields are: decisions"),
        ("/wanted/arms", {"name": "x"}, "body: there is no field 'name'. Did you mean 'arm'? The fields are: arm"),
        (
            "/wanted/decisions",
            {"observation": [1, 2], "available": ["mid"]},
            "available: expected some of: low, high, got 'mid', which is retired",
        ),
        (
            "/wanted/decisions",
            {"observation": [1, 2], "available": ["low", "hihg"]},
            "available: expected some of: low, high, got 'hihg'",
        ),
        (
            "",
            spec | {"agent": "random", "options": {"max_pendign": 3}},
            "'random' has no option 'max_pendign'. Did you mean 'max_pending'? "
            "Its options are: budget, max_pending, regularisation",
        ),
    ):
        answer = http.post(f"/v1/streams{path}", json=body)
        assert_refused(answer, 422, "invalid")
        assert answer.json()["error"]["message"] == message
    rows = {"decisions": [{"observation": [1, 2], "kye": "1"}]}
    (row,) = http.post("/v1/streams/wanted/decisions/batch", json=rows).json()["results"]
    assert "Did you mean 'key'?" in row["error"]["message"]
    assert http.get("/v1/streams/wanted").json()["decisions"] == 0


def test_requests_that_are_too_large_are_refused(http: httpx.Client) -> None:
    make(http, "small")
    assert_refused(
        http.post("/v1/streams", json={"name": "wide", "observed": 1001, "arms": 2}), 413, "too_large", "1001"
    )
    assert_refused(http.post("/v1/streams", json={"name": "wide", "observed": 2, "arms": 10**9}), 413, "too_large")
    body = b" " * (1_048_576 + 1)
    assert_refused(http.post("/v1/streams/small/decisions", content=body), 413, "too_large", "1048576")
    assert_refused(http.post("/v1/streams", content=body), 413, "too_large", "1048576")
    assert_refused(
        http.post("/v1/streams/small/decisions", content=iter([b" " * 65_536] * 20)), 413, "too_large"
    )  # chunked
    assert http.post("/v1/streams/small/decisions", json={"observation": [1, 2]}).status_code == 200


def test_deeply_nested_options_are_refused(http: httpx.Client) -> None:
    body = b'{"name": "deep", "observed": 2, "arms": 2, "options": {"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    assert_refused(http.post("/v1/streams", content=body), 400, "malformed", "nested")


def test_streams_are_listed_in_pages(http: httpx.Client) -> None:
    for number in range(5):
        make(http, f"page-{number}")
    names, after = [], "page-"
    while after is not None and after.startswith("page-"):
        found = http.get("/v1/streams", params={"after": after, "limit": 2}).json()
        names += [view["name"] for view in found["streams"] if view["name"].startswith("page-")]
        after = found["after"]
    assert names == [f"page-{number}" for number in range(5)]
    for query in ({"limit": 0}, {"limit": 1001}, {"limit": "many"}):
        assert_refused(http.get("/v1/streams", params=query), 422, "invalid", "limit")


def test_unknown_paths_and_methods_are_refused(http: httpx.Client) -> None:
    assert_refused(http.get("/v1/streams/nobody"), 404, "not_found", "nobody")
    assert_refused(http.post("/v1/streams/nobody/decisions", json={"observation": [1]}), 404, "not_found", "nobody")
    assert_refused(http.post("/v1/streams/nobody/rewards", json={"decision": "x", "value": 1}), 404, "not_found")
    assert_refused(http.get("/v1/streams/nobody/decisions"), 405, "not_allowed", "POST")
    for method, path, allowed in (
        ("PUT", "/v1/streams", "GET, POST"),
        ("PATCH", "/v1/streams/nobody", "DELETE, GET"),
        ("POST", "/v1/overview", "GET, HEAD"),
        ("GET", "/v1/streams/nobody/rewards", "POST"),
    ):
        answer = http.request(method, path)
        assert_refused(answer, 405, "not_allowed", f"method: expected {allowed}, got {method}")
        assert answer.headers["allow"] == allowed
    assert_refused(http.get("/v2/"), 404, "not_found")
    assert_refused(http.get("/v1/streams/%00"), 404, "not_found")
    make(http, "here")
    assert_refused(http.post("/v1/streams/here/rewards", json={"decision": "\u0000", "value": 1}), 404, "not_found")
    assert_refused(http.delete("/v1/streams/here/arms/none"), 404, "not_found", "none")


def test_health_checks_and_metrics(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready"}
    make(http, "measured")
    before = metrics(http)
    for _ in range(3):
        http.post("/v1/streams/measured/decisions", json={"observation": [1, 2]})
    after = metrics(http)
    for name in (
        'halfseen_requests_total{route="decisions",status="200"}',
        'halfseen_request_seconds_bucket{le="+Inf",route="decisions"}',
        'halfseen_decide_seconds_bucket{le="+Inf"}',
        "halfseen_decides_total",
    ):
        assert after[name] - before.get(name, 0) == 3, name
    assert after["halfseen_ready"] == 1
    assert all(math.isfinite(value) for value in after.values())
    answer = http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "worker=" not in answer.text
    assert "_created" not in answer.text


def test_every_request_is_counted_by_its_route_and_status(http: httpx.Client) -> None:
    def counts() -> dict[tuple[str, str], float]:
        pattern = re.compile(r'halfseen_requests_total\{route="([^"]+)",status="(\d+)"\}')
        return {found.groups(): value for name, value in metrics(http).items() if (found := pattern.fullmatch(name))}

    make(http, "counted")
    before = counts()
    make(http, "counted")
    for path in ("/v1/streams", "/v1/streams/counted", "/v1/streams/nobody", "/healthz", "/", "/dashboard/app.js"):
        http.get(path)
    http.get("/v1/streams/counted/series")
    http.get("/v1/streams/counted/journal")
    http.get("/nowhere/at/all")
    http.put("/v1/streams")
    http.post("/v1/streams", content=b"{")
    after = counts()
    stream = "/v1/streams/{name}"
    paths = ["/v1/streams", stream, f"{stream}/series", f"{stream}/journal", "/healthz", "/", "/dashboard/{file}"]
    expected = {("POST /v1/streams", "201"), ("POST /v1/streams", "400"), (f"GET {stream}", "404")}
    expected |= {(f"GET {path}", "200") for path in [*paths, "/metrics"]} | {("other", "404"), ("other", "405")}
    changes = {key: number - before.get(key, 0) for key, number in after.items() if number != before.get(key, 0)}
    assert changes == dict.fromkeys(expected, 1)


def test_every_reply_has_the_security_headers(http: httpx.Client) -> None:
    make(http, "headed")
    answers = [
        http.get("/docs"),
        http.get("/healthz"),
        http.get("/nowhere"),
        http.post("/v1/streams/headed/decisions", json={"observation": [1, 2]}),
        http.post("/v1/streams/headed/decisions", content=b"{"),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


def test_a_client_that_disconnects_during_a_request_does_no_harm(http: httpx.Client) -> None:
    make(http, "left")
    url = urlsplit(str(http.base_url))
    for part in (b"", b'{"observation": [1', b'{"observation": [1, 2]}'):
        with socket.create_connection((url.hostname, url.port)) as connection:
            head = "POST /v1/streams/left/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 23\r\n\r\n"
            connection.sendall(head.encode() + part)
    assert http.post("/v1/streams/left/decisions", json={"observation": [1, 2]}).status_code == 200


@pytest.mark.parametrize("half_closed", [False, True])
def test_a_body_that_is_cut_off_is_not_executed(http: httpx.Client, service: Served, half_closed: bool) -> None:
    """What has arrived is valid JSON, but the announced length is larger, or the last chunk is missing."""
    name = f"cut-{half_closed}".lower()
    make(http, name)
    url, body = urlsplit(str(http.base_url)), b'{"observation": [1, 2]}'
    new = b'{"name": "cut-new", "observed": 1, "arms": 2, "agent": "random"}'
    for path, content in ((f"/v1/streams/{name}/decisions", body), (f"/v1/streams/{name}/arms", b'{"arm": "x"}'),
                          ("/v1/streams", new), ("/v1/journal", b"x")):  # fmt: skip
        for framing, sent in (
            (f"Content-Length: {len(content) + 1}", content),
            ("Transfer-Encoding: chunked", b"%x\r\n%s\r\n" % (len(content), content)),
        ):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode()
            for wait in (0.0, 0.05):  # the end comes with the body, or while the service waits for more
                with socket.create_connection((url.hostname, url.port)) as connection:
                    connection.sendall(head + sent)
                    time.sleep(wait)
                    if half_closed:
                        connection.shutdown(socket.SHUT_WR)
                        connection.settimeout(10)
                        assert connection.recv(1000) == b""
    view = http.get(f"/v1/streams/{name}").json()
    assert (view["decisions"], view["arms"]) == (0, ["low", "high"])
    assert_refused(http.get("/v1/streams/cut-new"), 404, "not_found")
    assert "Traceback" not in service.text


def test_a_trailing_slash_is_not_redirected_to_the_host_of_the_request(http: httpx.Client) -> None:
    for path in ("/v1/streams/", "/healthz/", "/docs/"):
        answer = http.get(path, headers={"host": "evil.example"})
        assert_refused(answer, 404, "not_found", path)
        assert "evil" not in answer.text + str(answer.headers)


def test_numbers_are_recorded_exactly(http: httpx.Client) -> None:
    """A float is the same, bit for bit, in the request, the journal and the reply."""
    make(http, "exact")
    answer = http.post("/v1/streams/exact/decisions", json={"observation": [0.1 + 0.2, 1e-300]}).json()
    value = 1 / 3
    assert (
        http.post("/v1/streams/exact/rewards", json={"decision": answer["id"], "value": value}).json()["value"] == value
    )
    lines = [json.loads(line) for line in http.get("/v1/streams/exact/journal").text.splitlines()]
    assert [line["kind"] for line in lines] == ["created", "decided", "rewarded"]
    assert lines[1]["observation"] == [0.1 + 0.2, 1e-300]
    assert lines[1]["propensities"] == answer["propensities"]
    assert lines[2]["value"] == value


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_an_exported_stream_can_be_imported_elsewhere(http: httpx.Client, tmp_path: Path, form: str) -> None:
    """The original and the imported stream make the same next decision."""
    name = f"moved-{form}"
    make(http, name, arms=3)
    for t in range(30):
        made = http.post(f"/v1/streams/{name}/decisions", json={"observation": [t % 3, None]}).json()
        http.post(f"/v1/streams/{name}/rewards", json={"decision": made["id"], "value": t / 7})
    exported = http.get(f"/v1/streams/{name}/journal", params={"format": form})
    assert exported.status_code == 200, exported.text
    assert_refused(http.post("/v1/journal", content=exported.content), 409, "conflict", name)
    with serving(tmp_path) as other:
        imported = httpx.post(other.url + "/v1/journal", content=exported.content, timeout=60)
        assert imported.status_code == 201, imported.text
        assert imported.json() == {"streams": {name: 61}}
        original = http.post(f"/v1/streams/{name}/decisions", json={"observation": [1, 2]}).json()
        copy = httpx.post(other.url + f"/v1/streams/{name}/decisions", json={"observation": [1, 2]}).json()
        del original["id"], copy["id"]
        assert original == copy
        everything = httpx.get(other.url + "/v1/journal", params={"format": form})
        assert everything.status_code == 200
        assert len(everything.content) > 1_000


@pytest.mark.parametrize("body", [b"", b"hello", b"{}\n", b"PAR1 or so", b'{"stream": "x", "seq": 1}\n', b"\xff\n"])
def test_invalid_imports_are_refused(http: httpx.Client, body: bytes) -> None:
    before = http.get("/v1/streams", params={"limit": 1000}).json()
    answer = http.post("/v1/journal", content=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert http.get("/v1/streams", params={"limit": 1000}).json() == before


def test_guardrails_are_set_shown_and_marked_on_decisions(http: httpx.Client) -> None:
    path = "/v1/streams/guarded"
    make(http, "guarded", guardrails={"control": ["low", 1.0]})
    made = http.post(f"{path}/decisions", json={"observation": [0.1, 0.2], "key": "k"}).json()
    assert (made["arm"], made["branch"], made["propensities"]) == ("low", "control", [1.0, 0.0])
    assert http.get(f"{path}/guardrails").json() == {"floor": 0.0, "holdback": 0.0, "control": ["low", 1.0]}
    settings = {"floor": 0.25, "holdback": 1.0, "control": None}
    for _ in range(2):  # the second request changes nothing
        assert http.put(f"{path}/guardrails", json=settings).json() == settings
    assert http.get(path).json()["version"] == 3
    reply = http.post(f"{path}/decisions", json={"observation": [0.1, 0.2]}).json()
    assert reply["branch"] in ("floor", "holdback")
    assert reply["propensities"] == [0.5, 0.5]
    again = http.post(f"{path}/decisions", json={"observation": [0.1, 0.2], "key": "k"}).json()
    assert (again["repeated"], again["branch"]) == (True, "control")
    assert http.put(f"{path}/guardrails", json={}).json() == {"floor": 0.0, "holdback": 0.0, "control": None}
    assert "branch" not in http.post(f"{path}/decisions", json={"observation": [0.1, 0.2]}).json()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"floor": 0.6}, "floor: expected at most 1/2, because 2 arms can be chosen, got 0.6"),
        ({"floor": -0.1}, "floor: expected a number from 0 to 1, got -0.1"),
        ({"holdback": 0.6, "control": ["low", 0.6]}, "holdback and control: expected shares that sum to at most 1"),
        ({"control": ["lwo", 0.1]}, "There is no arm 'lwo'. Did you mean 'low'?"),
        ({"control": ["low"]}, "control: expected"),
        ({"control": "low"}, "control: expected"),
        ({"flor": 0.1}, "Did you mean 'floor'?"),
        ({"floor": "high"}, "floor: expected"),
    ],
)
def test_bad_guardrails_are_refused_and_change_nothing(http: httpx.Client, settings: object, words: str) -> None:
    make(http, "guardrails-refused", guardrails={"floor": 0.1})
    before = http.get("/v1/streams/guardrails-refused").json()
    assert_refused(http.put("/v1/streams/guardrails-refused/guardrails", json=settings), 422, "invalid", words)
    body = {"name": "never", "observed": 2, "arms": ["low", "high"], "guardrails": settings}
    assert_refused(http.post("/v1/streams", json=body), 422, "invalid")
    assert http.get("/v1/streams/guardrails-refused").json() == before
    assert http.get("/v1/streams/guardrails-refused/guardrails").json()["floor"] == 0.1


def test_arms_that_contradict_the_guardrails_are_refused(http: httpx.Client) -> None:
    make(http, "contradicted", guardrails={"floor": 0.5, "control": ["low", 0.5]})
    path = "/v1/streams/contradicted"
    assert_refused(http.post(f"{path}/arms", json={"arm": "new"}), 422, "invalid", "floor: expected at most 1/3")
    assert_refused(http.delete(f"{path}/arms/low"), 422, "invalid", "not the control arm")
    request = {"observation": [0.1, 0.2], "available": ["high"]}
    assert_refused(http.post(f"{path}/decisions", json=request), 422, "invalid", "the control arm 'low'")
    options = {"name": "never", "observed": 2, "arms": 2, "agent": "ts-pco", "options": {"floor": 0.1}}
    assert_refused(http.post("/v1/streams", json=options), 422, "invalid", "'floor', which belongs to guardrails")
    assert http.get(path).json()["version"] == 1
    assert_refused(http.put("/v1/streams/nobody/guardrails", json={}), 404, "not_found")
    assert_refused(http.get("/v1/streams/nobody/guardrails"), 404, "not_found")


def test_a_stream_of_meb_from_before_guardrails_keeps_its_option(http: httpx.Client) -> None:
    """In version 0.2.0 `floor` was an option of the agent."""
    make(http, "old-meb", agent="meb", options={"floor": 0.2, "observation_cov": 0.1})
    assert "branch" not in http.post("/v1/streams/old-meb/decisions", json={"observation": [0.1, 0.2]}).json()
    assert http.get("/v1/streams/old-meb/guardrails").json()["floor"] == 0.0


def test_costs_and_a_budget(http: httpx.Client) -> None:
    path = "/v1/streams/paid"
    make(http, "paid", options={"budget": [1.0, 4]})
    request = {"observation": [0.1, 0.2], "costs": {"high": 1.0, "low": 0.25}, "key": "k"}
    for _ in range(4):
        made = http.post(f"{path}/decisions", json=request | {"key": str(_)}).json()
        assert (made["arm"], made["propensities"]) == ("low", [1.0, 0.0])  # "high" would leave too little
    facts = http.get(f"{path}/health").json()["facts"]
    assert (facts["spent"], facts["rounds left of the budget"]) == (1.0, 0)
    words = "costs: expected an available arm that costs at most 0, which is left of the budget"
    assert_refused(http.post(f"{path}/decisions", json=request), 422, "invalid", words)
    again = http.post(f"{path}/decisions", json=request | {"key": "3", "costs": [0.25, 1.0]})
    assert again.json()["repeated"]
    other = request | {"key": "3", "costs": [0.0, 1.0]}
    assert_refused(http.post(f"{path}/decisions", json=other), 409, "conflict", "which was used with other costs")


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ([0.1], "costs: expected 2 numbers from 0 to 1e+100, one per arm, got shape (1,)"),
        ([0.1, -1], "got a number that is negative"),
        ([0.1, 1e101], "too large"),
        ({"low": 0.1}, "costs: expected a number for every arm, got none for 'high'"),
        ({"low": 0.1, "high": 0.2, "hihg": 0.3}, "This stream has no arm 'hihg'. Did you mean 'high'?"),
        ("free", "costs"),
        ([None, 0.1], "costs"),
        (None, "because the agent has a budget, got none"),
    ],
)
def test_bad_costs_are_refused_and_change_nothing(http: httpx.Client, costs: object, words: str) -> None:
    make(http, "costs-refused", options={"budget": [10.0, 5]})
    before = http.get("/v1/streams/costs-refused").json()
    body = {"observation": [0.1, 0.2], "costs": costs}
    assert_refused(http.post("/v1/streams/costs-refused/decisions", json=body), 422, "invalid", words)
    assert http.get("/v1/streams/costs-refused").json() == before


@pytest.mark.parametrize("budget", [0, [0, 5], [1, 0], [1, 2.5], [-1, 5], "much", [1]])
def test_a_bad_budget_is_refused(http: httpx.Client, budget: object) -> None:
    body = {"name": "never", "observed": 2, "arms": 2, "agent": "ts-pco", "options": {"budget": budget}}
    assert_refused(http.post("/v1/streams", json=body), 422, "invalid", "budget")


def test_lift_is_in_the_health_report_and_survives_an_export(http: httpx.Client, tmp_path: Path) -> None:
    from halfseen.evaluation.evaluate import evaluate

    make(http, "lifted", guardrails={"control": ["low", 0.5]})
    path = "/v1/streams/lifted"
    rows = [{"observation": [0.1 * t, 0.2]} for t in range(80)]
    made = http.post(f"{path}/decisions/batch", json={"decisions": rows}).json()["results"]
    rewards = [{"decision": one["id"], "value": t % 3 + 2.0 * (one["arm"] == "high")} for t, one in enumerate(made)]
    http.post(f"{path}/rewards/batch", json={"rewards": rewards})
    health = http.get(f"{path}/health").json()
    shown = health["facts"]["lift over control, low, high"]
    assert [one["name"] for one in health["findings"]] == ["lift over control"]
    for form in ("ndjson", "parquet"):
        (tmp_path / f"log.{form}").write_bytes(http.get(f"{path}/journal", params={"format": form}).content)
        (lift,) = evaluate(tmp_path / f"log.{form}").lifts
        assert [lift.difference.value, lift.difference.low, lift.difference.high] == pytest.approx(shown, rel=1e-9)


@pytest.mark.parametrize("agent", ["ts-pco", "adaptive", "glm-ucb"])
def test_a_stream_of_clicks_expects_probabilities_and_refuses_other_rewards(http: httpx.Client, agent: str) -> None:
    name = f"clicks-{agent}"
    make(http, name, agent=agent, options={"reward_family": "binary"})
    for t in range(12):
        made = http.post(f"/v1/streams/{name}/decisions", json={"observation": [0.1 * t, 1.0]}).json()
        assert all(0.0 <= one <= 1.0 for one in made["expected"])
        for value in (1.5, -0.25):
            answer = http.post(f"/v1/streams/{name}/rewards", json={"decision": made["id"], "value": value})
            assert_refused(answer, 422, "invalid", "value: expected a number from 0 to 1", "'binary'")
        answer = http.post(f"/v1/streams/{name}/rewards", json={"decision": made["id"], "value": t % 2})
        assert answer.json()["folded"] is True, answer.text


def test_a_default_reward_outside_of_the_family_is_refused(http: httpx.Client) -> None:
    spec = {"name": "counted", "observed": 2, "arms": 2, "agent": "ts-pco", "options": {"reward_family": "count"}}
    answer = http.post("/v1/streams", json=spec | {"reward_wait": 60, "default_reward": -1})
    assert_refused(answer, 422, "invalid", "default_reward: expected a number from 0", "'count'")
    answer = http.post("/v1/streams", json=spec | {"options": {"reward_family": "logit"}})
    assert_refused(answer, 422, "invalid", "reward_family: expected 'gaussian' or 'binary' or 'count'")
