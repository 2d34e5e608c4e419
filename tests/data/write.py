"""Write the files by which later versions check that they open the data of this one.

    PYTHONPATH=src:tests python tests/data/write.py tests/data/0.2.0

A folder is written once, by the version whose name it has, and never changed afterwards.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from engine_tools import decide, open_engine, reward, reward_from_id, spec, to_json_value
from settings import (
    ARMS,
    OBSERVED,
    context_argument,
    contexts_argument,
    make_small,
    play_rounds,
    simulate_rounds,
    small_options,
)

import halfseen as hs
from halfseen.journal.journal import open_journal
from halfseen.journal.transfer import export
from halfseen.service.engine.loaded_stream import pack_model
from halfseen.service.engine.transaction import Operation, StreamTransaction

ROUNDS = 40
STREAMS = {
    "names": {"agent": "ts-pco", "observed": ["load", "price", "hour"]},
    "numbers": {"agent": "emkf-ts", "arms": 3, "options": {"latent": 5, "window": 25}},
    "known-model": {"agent": "kf-ts", "options": {"model": to_json_value(small_options("kf-ts")["model"])}},
    "identified-model": {"agent": "adaptive", "options": {"latent": 4}},
    "weighted": {"agent": "meb", "options": {"burn_in": 10}},
    "late": {"agent": "lag-ts", "reward_wait": 0.2, "default_reward": 0.0, "late_rewards": "fold"},
    "retired": {"agent": "random"},
}


def next_decisions(agent: hs.Agent, count: int = 3) -> list[dict[str, Any]]:
    """Make decisions without learning, as JSON values."""
    xs, ys, _ = simulate_rounds(count, seed=99)
    decisions = [agent.decide(y, **context_argument(agent, x)) for x, y in zip(xs, ys, strict=True)]
    return [{"arm": one.index, "propensities": one.propensities.tolist()} for one in decisions]


def write_agents(folder: Path) -> dict[str, Any]:
    """Save an agent of every kind, with missing entries and open decisions, and return what each decides next."""
    expected = {}
    for name in hs.catalog():
        agent = make_small(name, seed=3)
        play_rounds(agent, *simulate_rounds(ROUNDS, seed=3, missing=0.1))
        x, y = (part[0] for part in simulate_rounds(1, seed=4)[:2])
        agent.decide(y, **context_argument(agent, x))
        if name in ("ts-pco", "adaptive"):
            agent.add_arm()
            agent.retire_arm(1)
        agent.save(folder / f"{name}.hs")
        expected[name] = next_decisions(hs.load(folder / f"{name}.hs"))
    return expected


def write_fleet(folder: Path) -> list[int]:
    fleet = hs.Fleet("kf-ts", observed=OBSERVED, arms=ARMS, **small_options("kf-ts"))
    fleet.add(["first", "second"], seeds=[3, 4])
    xs, ys, _ = simulate_rounds(ROUNDS, seed=3, missing=0.1)
    for x, y in zip(xs, ys, strict=True):
        decisions = fleet.decide(np.stack([y, -y]), **contexts_argument("kf-ts", np.stack([x, -x])))
        fleet.learn(decisions.ids, decisions.indices - 1.5)
    fleet.save(folder / "fleet.hs")
    return hs.load(folder / "fleet.hs").decide(np.zeros((2, OBSERVED))).indices.tolist()


async def write_database(url: str) -> None:
    async with open_engine(url) as engine:
        for name, fields in STREAMS.items():
            await engine.create_stream(spec(name, **fields))
            for t in range(ROUNDS):
                made = await decide(engine, t, key=f"key-{t}" if t % 5 == 0 else None, name=name)
                if t % 7:
                    await reward(engine, made, reward_from_id(made.id), name=name)
        await engine.add_arm("names", "d")
        await engine.retire_arm("names", "b")
        await accept_model(engine, "identified-model")
        for name in ("names", "identified-model"):
            await engine.snapshot(name)
        for t in range(ROUNDS, ROUNDS + 3):  # events after the snapshots
            await decide(engine, t, name="names")
            await decide(engine, t, name="identified-model")
        unrewarded = await decide(engine, ROUNDS, name="late")
        await asyncio.sleep(0.5)  # until the wait is over and the default reward is learnt
        await reward(engine, unrewarded, 1.5, name="late")
        await engine.retire_stream("retired")


async def accept_model(engine: Any, name: str) -> None:
    """Identify a model as the separate process would, and record it in the journal."""
    agent = await engine.agent(name)
    agent.refit()
    accept = partial(StreamTransaction.accept_model, model=pack_model(agent.model()), seen=10**6, after=0)
    accepted = await engine._queue.submit(Operation.single(name, accept, asyncio.get_running_loop().create_future()))
    assert accepted == [True]


async def state_of_streams(url: str) -> dict[str, Any]:
    """Return what is stored of every stream, and what it decides next."""
    found = {}
    async with open_engine(url) as engine:
        for name in STREAMS:
            view = await engine.stream(name)
            found[name] = {"decisions": view.decisions, "rewards": view.rewards, "arms": list(view.arms)}
            if name != "retired":
                made = await decide(engine, 1000, name=name)
                found[name] |= {"arm": made.arm, "propensities": made.propensities}
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    expected = {"agents": write_agents(folder), "fleet": write_fleet(folder)}
    url = str(folder / "journal.db")
    asyncio.run(write_database(url))
    with closing(open_journal(url)) as journal:
        for ending in ("ndjson", "parquet"):
            export(journal, folder / f"journal.{ending}")
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copy(url, scratch)
        expected["streams"] = asyncio.run(state_of_streams(copy))
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
