"""Imports of files that no service has written: each is refused with its line and field, or can be served."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from engine_tools import observation, reward_from_id, spec, with_engine

from halfseen.agents import saving
from halfseen.cli.app import run_app
from halfseen.journal.events import JournalError
from halfseen.journal.journal import open_journal
from halfseen.journal.transfer import export, read_events
from halfseen.service.engine.loaded_stream import pack_model
from halfseen.service.engine.transaction import Operation, StreamTransaction
from halfseen.service.schemas import DecisionRequest, GuardrailSettings, RewardRequest

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

Lines = list[dict[str, Any]]
EVENTS = b"halfseen.events"
CASES = [50, pytest.param(150, marks=pytest.mark.slow)]  # of each fuzz test
RELEASED = Path(__file__).parents[2] / "data" / "0.2.0"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return exports of two streams with events of all kinds, by format."""
    folder = tmp_path_factory.mktemp("exported")
    url = str(folder / "j.db")

    async def wait_for(engine: Any, name: str, events: int) -> None:
        """Wait until the reward waits are over, so that the number of events does not depend on the clock."""
        while (await engine.stream(name)).version < events:
            await asyncio.sleep(0.005)

    async def scenario(engine: Any) -> None:
        await engine.create_stream(spec("names", observed=["x", "y", "z"], reward_wait=0.001, default_reward=0.5))
        await engine.create_stream(spec("numbers", arms=3, agent="adaptive", options={"latent": 3}))
        await engine.create_stream(spec("waiting", reward_wait=0.001))
        await engine.create_stream(spec("protected"))
        for name in ("names", "numbers", "waiting"):
            decisions = [await engine.decide(name, DecisionRequest(observation(t), key=f"k{t}")) for t in range(12)]
            if name != "numbers":
                await wait_for(engine, name, 25)
            for decision in decisions[:10]:
                await engine.reward(name, RewardRequest(decision.id, reward_from_id(decision.id)))
        await engine.add_arm("names", "d")
        await engine.retire_arm("names", "a")
        await engine.decide("names", DecisionRequest(observation(20), ["b", "d"]))
        await wait_for(engine, "names", 39)
        await engine.retire_stream("names")
        agent = await engine.agent("numbers")
        agent.refit()
        accept = partial(StreamTransaction.accept_model, model=pack_model(agent.model()), seen=5, after=0)
        future = asyncio.get_running_loop().create_future()
        await engine._queue.submit(Operation.single("numbers", accept, future))
        await engine.decide("numbers", DecisionRequest(observation(21)))
        await engine.decide("protected", DecisionRequest(observation(1)))
        for holdback in (0.0, 0.2):
            await engine.set_guardrails("protected", GuardrailSettings(0.1, holdback, ("a", 0.3)))
            for t in range(5):
                decision = await engine.decide("protected", DecisionRequest(observation(t)))
                await engine.reward("protected", RewardRequest(decision.id, reward_from_id(decision.id)))

    with_engine(url, scenario)
    journal, found = open_journal(url), {}
    for ending in ("ndjson", "parquet"):
        export(journal, folder / f"out.{ending}")
        found[ending] = (folder / f"out.{ending}").read_bytes()
    journal.close()
    return found


def lines_of(content: bytes) -> Lines:
    return [json.loads(line) for line in content.splitlines()]


def ndjson(lines: Lines) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in lines)


def renamed(lines: Lines, prefix: str) -> Lines:
    """Return the lines with other names of the streams, and without the size of the export."""
    return [{k: v for k, v in line.items() if k != "exported"} | {"stream": prefix + line["stream"]} for line in lines]


def stream_names(http: httpx.Client) -> set[str]:
    return {one["name"] for one in http.get("/v1/streams", params={"limit": 1000}).json()["streams"]}


def refused_line(http: httpx.Client, content: bytes) -> str:
    """Import a file that must be refused with 422 and add no stream, and return the message."""
    before = stream_names(http)
    answer = http.post("/v1/journal", content=content)
    assert answer.status_code == 422, answer.text
    assert stream_names(http) == before
    message: str = answer.json()["error"]["message"]
    assert "\n" not in message
    return message


# ---------------------------------------------------------------------- a table of malformed files

UUID4 = "0d9f6b5e-5a2f-4c1c-9d0a-3c8f0f5b1a11"
MALFORMED = [  # stream, kind, which event of this kind, field, value, field in the message
    ("names", "decided", 2, "id", "nobody", "id"),
    ("names", "decided", 2, "id", None, "id"),
    ("names", "decided", 2, "id", UUID4, "id"),
    ("names", "decided", 2, "id", "00000000-0000-7000-8000-000000000000", "id"),
    ("names", "decided", 2, "id", "ffffffff-ffff-7fff-8000-000000000000", "id"),
    ("names", "decided", 2, "id", "\0", "id"),
    ("names", "decided", 2, "round", 1e30, "round"),
    ("names", "decided", 2, "round", 10**30, "round"),
    ("names", "decided", 2, "round", 2, "round"),
    ("names", "decided", 2, "round", -1, "round"),
    ("names", "decided", 2, "propensities", [], "propensities"),
    ("names", "decided", 2, "propensities", [0.5, 0.5], "propensities"),
    ("names", "decided", 2, "propensities", [0.5, 0.5, 0.5], "propensities"),
    ("names", "decided", 2, "propensities", [1.5, -0.5, 0.0], "propensities"),
    ("names", "decided", 2, "propensities", [None, None, None], "propensities[0]"),
    ("names", "decided", 2, "propensity", 7.0, "propensity"),
    ("names", "decided", 2, "propensity", "much", "propensity"),
    ("names", "decided", 2, "expected", [], "expected"),
    ("names", "decided", 2, "observation", [], "observation"),
    ("names", "decided", 2, "observation", [1e300, 0.0, 0.0], "observation"),
    ("names", "decided", 2, "observation", ["x", 0.0, 0.0], "observation[0]"),
    ("names", "decided", 2, "observation", {"x": 1.0}, "observation"),
    ("names", "decided", 2, "arm", "nobody", "arm"),
    ("names", "decided", 2, "arm", "d", "arm"),  # is added later
    ("names", "decided", 2, "arm", 0, "arm"),
    ("names", "decided", 12, "arm", "a", "arm"),  # is retired
    ("names", "decided", 12, "available", ["a"], "available"),
    ("names", "decided", 12, "available", [], "available"),
    ("names", "decided", 2, "key", "\0", "key"),
    ("names", "decided", 2, "key", "k" * 300, "key"),
    ("names", "decided", 2, "key", "k1", "key"),
    ("names", "decided", 2, "clock", 2**62, "clock"),
    ("names", "decided", 2, "blob", "aGk=", "blob"),
    ("names", "decided", 2, "blob", "!", "blob"),
    ("names", "decided", 2, "time", "2001-01-01T00:00:00Z", "time"),
    ("names", "decided", 2, "time", "9999-12-31T23:59:59-23:00", "time"),
    ("names", "decided", 2, "time", "2030-01-01T00:00:00", "time"),
    ("names", "decided", 2, "time", 3, "time"),
    ("names", "decided", 2, "seq", 1e30, "seq"),
    ("names", "decided", 2, "seq", 10**30, "seq"),
    ("names", "decided", 2, "kind", "guessed", "kind"),
    ("names", "decided", 2, "kind", "created", "spec"),
    ("names", "decided", 2, "stream", "../etc", "stream"),
    ("names", "decided", 2, "stream", "x\0", "stream"),
    ("names", "rewarded", 2, "decision", "nobody", "decision"),
    ("names", "rewarded", 2, "decision", UUID4, "decision"),
    ("names", "rewarded", 2, "id", UUID4, "id"),
    ("names", "rewarded", 2, "round", 9, "round"),
    ("names", "rewarded", 2, "value", 1e200, "value"),
    ("names", "rewarded", 2, "value", None, "value"),
    ("names", "rewarded", 2, "how", "maybe", "how"),
    ("names", "rewarded", 0, "how", "late", "how"),
    ("names", "rewarded", 2, "folded", "yes", "folded"),
    ("waiting", "rewarded", 2, "how", "given", "how"),
    ("waiting", "expired", 2, "decision", "nobody", "decision"),
    ("names", "arm_added", 0, "arm", "b", "name"),
    ("names", "arm_added", 0, "arm", "\0", "arm"),
    ("names", "arm_added", 0, "arm", 7, "arm"),
    ("names", "arm_added", 0, "params", [1.0], "params"),
    ("names", "arm_retired", 0, "arm", "nobody", "There is no arm"),
    ("names", "created", 0, "spec", {}, "spec."),
    ("names", "created", 0, "spec", {"observed": 3, "arms": 10**6}, "spec.arms"),
    ("names", "created", 0, "spec", {"observed": 10**9, "arms": 3}, "spec.observed"),
    ("names", "created", 0, "spec", {"observed": 3, "arms": ["a\0", "b"]}, "spec.arms"),
    ("names", "created", 0, "spec", {"observed": 3, "arms": 3, "agent": "nobody"}, "spec."),
    ("names", "created", 0, "spec", {"observed": 3, "arms": 3, "seed": -1}, "spec.seed"),
    ("names", "created", 0, "spec", {"observed": 3, "arms": 3, "reward_wait": -1.0}, "spec.reward_wait"),
    ("names", "created", 0, "spec", {"observed": 3, "arms": 3, "options": {"latent": "x"}}, "spec."),
    ("numbers", "decided", 2, "arm", "0", "arm"),
    ("numbers", "decided", 2, "arm", 3, "arm"),
    ("numbers", "model_accepted", 0, "seen", -1, "seen"),
    ("numbers", "model_accepted", 0, "seen", 1e30, "seen"),
    ("protected", "guardrails_set", 0, "floor", 0.6, "floor"),
    ("protected", "guardrails_set", 0, "floor", -0.1, "floor"),
    ("protected", "guardrails_set", 0, "floor", "high", "floor"),
    ("protected", "guardrails_set", 0, "holdback", 1.5, "holdback"),
    ("protected", "guardrails_set", 0, "holdback", 0.9, "holdback and control"),
    ("protected", "guardrails_set", 0, "control", ["nobody", 0.1], "control"),
    ("protected", "guardrails_set", 0, "control", ["a", 2.0], "control"),
    ("protected", "guardrails_set", 0, "control", ["a", 0.0], "control"),
    ("protected", "guardrails_set", 0, "control", 3, "control"),
    ("protected", "guardrails_set", 0, "id", UUID4, "id"),
    ("protected", "guardrails_set", 1, "holdback", 0.0, "kind"),  # changes nothing
    ("protected", "decided", 0, "branch", "floor", "branch"),
    ("protected", "decided", 2, "branch", None, "branch"),
    ("protected", "decided", 2, "branch", "guessed", "branch"),
    ("protected", "decided", 2, "branch", "holdback", "branch"),
    ("names", "created", 0, "spec", {"observed": 3, "arms": 3, "guardrails": {"floor": 0.5}}, "spec.floor"),
    ("names", "created", 0, "spec", {"observed": 3, "arms": 3, "options": {"floor": 0.5}}, "spec.options"),
]


@pytest.mark.parametrize("row", MALFORMED, ids=lambda row: f"{row[1]}.{row[3]}={str(row[4])[:20]!a}")
def test_a_malformed_field_is_named_with_its_line(http: httpx.Client, exported: dict[str, bytes], row: Any) -> None:
    stream, kind, which, field, value, named = row
    prefix = f"field{MALFORMED.index(row)}-"  # so that a file that is accepted by mistake affects no other test
    lines = [one for one in renamed(lines_of(exported["ndjson"]), prefix) if one["stream"] == prefix + stream]
    index = [n for n, one in enumerate(lines) if one["kind"] == kind][which]
    lines[index][field] = value
    message = refused_line(http, ndjson(lines))
    assert message.startswith(f"line {index + 1}: {named}"), message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"available": ["b"]}, "available: expected arms with the control arm 'a' among them"),
        ({}, "propensities: expected at least 0.1 for every arm"),
        ({"propensities": [0.3, 0.5, 0.2], "propensity": 0.5}, "propensities: expected at least 0.1 for every arm"),
        ({"propensities": [0.4, 0.4, 0.2], "propensity": 0.4, "branch": "control"}, "branch: expected one of: chooser"),
    ],
)
def test_a_decision_that_the_guardrails_exclude_is_refused(
    http: httpx.Client, exported: dict[str, bytes], change: dict[str, Any], message: str
) -> None:
    lines = lines_of(exported["ndjson"])
    decided = [line for line in lines if (line["stream"], line["kind"]) == ("protected", "decided")]
    decided[2] |= {"arm": "b", "propensity": 1.0, "propensities": [0.0, 1.0, 0.0], "branch": "chooser"} | change
    assert message in refused_line(http, ndjson(lines))


def test_a_reward_outside_of_the_range_of_its_family_is_refused(http: httpx.Client, exported: dict[str, bytes]) -> None:
    lines = [one for one in renamed(lines_of(exported["ndjson"]), "family-") if one["stream"] == "family-waiting"]
    lines[0]["spec"]["options"] = {"reward_family": "count"}
    index = next(n for n, one in enumerate(lines) if one["kind"] == "rewarded")
    lines[index]["value"] = -1.0
    expected = "value: expected a number from 0 to 1e+100, because the reward family is 'count', got -1.0"
    assert refused_line(http, ndjson(lines)).startswith(f"line {index + 1}: {expected}")


@pytest.mark.parametrize("field", ["stream", "seq", "time", "kind", "round", "arm", "propensity", "observation"])
def test_a_missing_field_is_named_with_its_line(http: httpx.Client, exported: dict[str, bytes], field: str) -> None:
    lines = renamed(lines_of(exported["ndjson"]), f"missing-{field}-")
    index = [n for n, one in enumerate(lines) if one["kind"] == "decided"][2]
    del lines[index][field]
    assert refused_line(http, ndjson(lines)).startswith(f"line {index + 1}: {field}: expected a value, got none")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"hello", 1),
        (b"{}\n", 1),
        (b"[1]", 1),
        (b"\xff\n", 1),
        (b"\n\n3\n", 3),
        (b"[" * 100_000, 1),
        (b'{"a":"\\ud800"}', 1),
    ],
)
def test_a_line_that_is_no_event_is_named(http: httpx.Client, content: bytes, line: int) -> None:
    assert refused_line(http, content).startswith(f"line {line}: ")


def test_events_in_another_order_are_refused(http: httpx.Client, exported: dict[str, bytes]) -> None:
    lines = renamed(lines_of(exported["ndjson"]), "order-")
    first = next(n for n, one in enumerate(lines) if one["kind"] == "decided")
    swapped = [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]]
    assert refused_line(http, ndjson(swapped)).startswith(f"line {first + 1}: seq: expected 2")
    repeated = [*lines[: first + 1], lines[first], *lines[first + 1 :]]
    assert refused_line(http, ndjson(repeated)).startswith(f"line {first + 2}: seq: expected 3")
    mixed = [*lines[:1], *(one for one in lines if one["stream"] != lines[0]["stream"]), *lines[1:]]
    assert ": stream: expected the events of stream 'order-names'" in refused_line(http, ndjson(mixed))


def test_a_decision_after_the_end_of_a_stream_is_refused(http: httpx.Client, exported: dict[str, bytes]) -> None:
    lines = [one for one in renamed(lines_of(exported["ndjson"]), "end-") if one["stream"] == "end-names"]
    decided = next(one for one in reversed(lines) if one["kind"] == "decided")
    again = decided | {"seq": len(lines) + 1, "time": lines[-1]["time"]}
    message = refused_line(http, ndjson([*lines, again]))
    assert message.startswith(f"line {len(lines) + 1}: kind: expected 'rewarded' or 'expired'")


@pytest.mark.parametrize(
    ("column", "change", "named"),
    [
        ("id", "nobody", "id"), ("round", 2**62, "round"), ("propensities", [], "propensities"),
        ("propensities", [float("nan")] * 3, "propensities"), ("propensity", None, "propensity"),
        ("observation", [float("inf"), 0.0, 0.0], "observation"), ("observation", None, "observation"),
        ("arm", "nobody", "arm"), ("key", "\0", "key"), ("seq", 1, "seq"), ("stream", "nobody", "stream"),
        ("reward", float("inf"), "value"), ("reward", None, "value"), ("how", "maybe", "how"),
        ("reward_time", None, "reward_time"), ("folded", None, "folded"), ("expected", [1.0], "expected"),
    ],
)  # fmt: skip
def test_a_malformed_cell_is_named_with_its_row(
    http: httpx.Client, exported: dict[str, bytes], column: str, change: Any, named: str
) -> None:
    table = renamed_table(parquet.read_table(io.BytesIO(exported["parquet"])), f"cell-{column}-{len(str(change))}-")
    rows = table.to_pylist()
    rows[2][column] = change
    message = refused_line(http, parquet_file(pa.Table.from_pylist(rows, schema=table.schema)))
    assert message.startswith(f"row 3: {named}"), message


@pytest.mark.parametrize("column", ["stream", "time", "propensities", "reward_seq"])
def test_a_parquet_file_without_a_column_is_refused(
    http: httpx.Client, exported: dict[str, bytes], column: str
) -> None:
    table = parquet.read_table(io.BytesIO(exported["parquet"])).drop_columns([column])
    assert refused_line(http, parquet_file(table)) == f"file: expected a column '{column}', got none"


def parquet_file(table: Any) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


# ---------------------------------------------------------------------- sizes


def test_a_highly_compressed_file_is_refused_at_once(
    http: httpx.Client, exported: dict[str, bytes], tmp_path: Path
) -> None:
    """Some kilobytes that contain twenty million numbers."""
    table = parquet.read_table(io.BytesIO(exported["parquet"])).slice(0, 1)
    count, width = 1_000, 20_000
    wide = pa.ListArray.from_arrays(np.arange(0, count * width + 1, width, dtype=np.int32), np.zeros(count * width))
    repeated = pa.concat_tables([table] * count)
    bomb = parquet_file(repeated.set_column(repeated.schema.get_field_index("expected"), "expected", wide))
    (tmp_path / "bomb.parquet").write_bytes(bomb)
    assert len(bomb) < 100_000
    began = time.monotonic()
    with pytest.raises(JournalError, match="expected at most 100000000 bytes after decompression, got 160"):
        list(read_events(tmp_path / "bomb.parquet", 100_000_000))
    assert time.monotonic() - began < 1.0
    assert refused_line(http, bomb).startswith("row 1: expected: expected 3 numbers, got 20000")
    assert time.monotonic() - began < 10.0


def test_a_long_text_is_refused_before_it_is_repeated(http: httpx.Client, exported: dict[str, bytes]) -> None:
    table = parquet.read_table(io.BytesIO(exported["parquet"])).slice(0, 1)
    repeated = pa.concat_tables([table] * 20_000)
    keys = pa.DictionaryArray.from_arrays(np.zeros(20_000, np.int32), pa.array(["k" * 10_000_000]))
    bomb = parquet_file(repeated.set_column(repeated.schema.get_field_index("key"), "key", keys))
    assert len(bomb) < 1_000_000
    assert "key: expected texts of at most" in refused_line(http, bomb)


def test_a_model_that_expands_to_gigabytes_is_skipped(http: httpx.Client, exported: dict[str, bytes]) -> None:
    """A model that does not fit is skipped and counted, like one of another version."""
    bomb = saving.to_bytes({}, {"transition": np.zeros(1 << 25)})
    lines = [one for one in renamed(lines_of(exported["ndjson"]), "skip-") if one["stream"] == "skip-numbers"]
    before = models_skipped(http)
    for line in lines:
        if line["kind"] == "model_accepted":
            line["blob"] = base64.b64encode(bomb).decode()
    answer = http.post("/v1/journal", content=ndjson(lines))
    assert answer.status_code == 201, answer.text
    assert models_skipped(http) == before + 1
    use(http, "skip-numbers", 3)


def models_skipped(http: httpx.Client) -> float:
    line = next(
        one for one in http.get("/metrics").text.splitlines() if one.startswith("halfseen_models_skipped_total")
    )
    return float(line.split()[-1])


def test_a_refused_import_of_the_command_line_creates_no_stream(
    exported: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(exported["ndjson"])
    lines[5]["seq"] = 77
    (tmp_path / "bad.ndjson").write_bytes(ndjson(lines))
    assert run_app(["import", str(tmp_path / "bad.ndjson"), "--database", str(tmp_path / "j.db")]) == 2
    assert "line 6: seq: expected 6" in capsys.readouterr().err
    journal = open_journal(str(tmp_path / "j.db"))
    assert journal.count_streams() == 0
    journal.close()


# ---------------------------------------------------------------------- fuzz

VALUES = (
    None, True, False, -1, 0, 1, 2, 3, 7, 45, 2**31, 2**53, 2**62, 2**63, 10**30, -0.5, 0.5, 1.0, 1e-300, 1e100, 1e101,
    1e308, "", "a", "b", "nobody", "\0", "\u2028", "x" * 5_000, [], [0], [1.0, 2.0, 3.0], [None] * 3, ["a"], [[1.0]],
    {}, {"a": 1}, {"transition": [[1.0]]}, UUID4, "given", "late", "default", "fold", "9999-12-31T23:59:59-23:00",
    "2026-01-01T00:00:00Z", "aGk=", "adaptive", "bayes", "ts-pco",
)  # fmt: skip


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all fields and entries of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places_in(item, (*path, key))


def value_at(value: Any, path: Sequence[Any]) -> Any:
    """Return the field or entry of a JSON value at a path."""
    for key in path:
        value = value[key]
    return value


def change_lines(rng: np.random.Generator, lines: Lines) -> None:
    """Change a field, or the order of the lines."""
    index, kind = int(rng.integers(len(lines))), rng.integers(12)
    if kind == 0:
        lines.insert(int(rng.integers(len(lines))), dict(lines[index]))
        return
    if kind == 1:
        del lines[index]
        return
    if kind == 2:
        other = int(rng.integers(len(lines)))
        lines[index], lines[other] = lines[other], lines[index]
        return
    if rng.random() < 0.3:
        index = int(rng.choice([n for n, one in enumerate(lines) if one.get("kind") not in ("decided", "rewarded")]))
    places = list(places_in(lines[index]))
    numbers = [path for path in places if isinstance(value_at(lines[index], path), float)]
    halves = 3 < kind < 7 and bool(numbers)  # which is often accepted
    *parents, last = (numbers if halves else places)[rng.integers(len(numbers if halves else places))]
    target = value_at(lines[index], parents)
    if kind == 3:
        del target[last]
    else:
        target[last] = 0.5 * target[last] if halves else VALUES[rng.integers(len(VALUES))]


def use(http: httpx.Client, name: str, observed: int) -> None:
    """Check that an imported stream can be served: it decides, learns and is exported again."""
    answer = http.post(f"/v1/streams/{name}/decisions", json={"observation": [0.5] * observed})
    if answer.status_code != 409:  # the stream is retired
        assert answer.status_code == 200, answer.text
        reward = {"decision": answer.json()["id"], "value": 1.0}
        assert http.post(f"/v1/streams/{name}/rewards", json=reward).status_code == 200
    for form in ("ndjson", "parquet"):
        exported = http.get(f"/v1/streams/{name}/journal", params={"format": form})
        assert exported.status_code == 200, exported.text
        assert exported.content


def check_import(http: httpx.Client, content: bytes, description: str) -> bool:
    """Import a file, and return whether it was accepted."""
    before = stream_names(http)
    try:
        answer = http.post("/v1/journal", content=content)
    except httpx.TransportError as error:
        raise AssertionError(f"{description}: the service does not answer: {error!r}") from error
    assert answer.status_code in (201, 400, 409, 422), f"{description}: {answer.status_code} {answer.text}"
    if answer.status_code != 201:
        assert stream_names(http) == before, description
        return False
    for name in answer.json()["streams"]:
        observed = http.get(f"/v1/streams/{name}").json()["spec"]["observed"]
        use(http, name, observed if isinstance(observed, int) else len(observed))
    return True


@pytest.mark.parametrize("cases", CASES)
def test_changed_lines_are_refused_or_served(http: httpx.Client, exported: dict[str, bytes], cases: int) -> None:
    accepted = 0
    for case in range(cases):
        rng = np.random.default_rng([31, case])
        lines = renamed(lines_of(exported["ndjson"]), f"line{case}-")
        change_lines(rng, lines)
        accepted += check_import(http, ndjson(lines), f"case {case}")
    assert cases / 30 < accepted < cases * 2 / 3


@pytest.mark.parametrize("cases", CASES)
def test_changed_bytes_are_refused_or_served(http: httpx.Client, cases: int) -> None:
    """The files are those of a released version, so that the same bytes are changed in every run."""
    lines = [one for one in lines_of((RELEASED / "journal.ndjson").read_bytes()) if one["stream"] in ("names", "late")]
    for case in range(cases):
        rng = np.random.default_rng([32, case])
        content = bytearray((RELEASED / "journal.parquet").read_bytes())
        if case % 2:
            content = bytearray(ndjson(renamed(lines, f"byte{case}-")))
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        check_import(http, bytes(content), f"case {case}")


@pytest.mark.parametrize("cases", CASES)
def test_changed_tables_are_refused_or_served(http: httpx.Client, exported: dict[str, bytes], cases: int) -> None:
    original = parquet.read_table(io.BytesIO(exported["parquet"]))
    accepted = 0
    for case in range(cases):
        rng = np.random.default_rng([33, case])
        table = renamed_table(original, f"table{case}-")
        accepted += check_import(http, parquet_file(change_table(rng, table)), f"case {case}")
    assert cases / 30 < accepted < cases * 2 / 3


def renamed_table(table: Any, prefix: str) -> Any:
    names = pa.array([prefix + name for name in table["stream"].to_pylist()])
    table = table.set_column(table.schema.get_field_index("stream"), "stream", names)
    lines = renamed(lines_of(table.schema.metadata[EVENTS]), prefix)
    return table.replace_schema_metadata({EVENTS: ndjson(lines)})


def change_table(rng: np.random.Generator, table: Any) -> Any:
    """Change a cell, the order of the rows, the type of a column, or an event in the metadata."""
    kind, column = rng.integers(8), str(rng.choice(table.column_names))
    if kind == 0:
        return table.drop_columns([column])
    if kind == 1:
        return table.take(rng.permutation(len(table)))
    if kind == 2:
        try:
            cast = table[column].cast([pa.string(), pa.float64(), pa.int32(), pa.bool_()][rng.integers(4)])
        except pa.ArrowException:
            cast = pa.nulls(len(table))
        return table.set_column(table.schema.get_field_index(column), column, cast)
    if kind == 3:
        lines = lines_of(table.schema.metadata[EVENTS])
        change_lines(rng, lines)
        return table.replace_schema_metadata({EVENTS: ndjson(lines)})
    while True:  # until a value fits the type of the column
        rows = table.to_pylist()
        rows[rng.integers(len(rows))][column] = VALUES[rng.integers(len(VALUES))]
        try:
            return pa.Table.from_pylist(rows, schema=table.schema)
        except (pa.ArrowException, TypeError, OverflowError, ValueError):
            continue
