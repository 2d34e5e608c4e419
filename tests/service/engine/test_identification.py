"""Models are found in a process beside, and are events like any other."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from engine_tools import assert_folds, decide, held, metric, on_engine, opened, refolded, reward, spec, until

from halfseen.service.engine.identification import IdentificationProcess

ADAPTIVE = {"agent": "adaptive", "observed": 2, "options": {"latent": 2, "history": 300}}


async def play(engine, name: str, rounds: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    x = 0.0
    for _ in range(rounds):
        x = 0.9 * x + rng.normal()
        made = await decide(engine, [x + 0.1 * rng.normal(), rng.normal()], name=name)
        await reward(engine, made, x if made.arm == "a" else -x, name=name)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@on_engine(identify=True)
async def test_models_come_early_are_events_and_fold_exactly(engine, database):
    for name in ("one", "two"):
        await engine.create_stream(spec(name, **ADAPTIVE))
    await asyncio.gather(play(engine, "one", 10), play(engine, "two", 10))
    for name in ("one", "two"):  # in turn: neither waits for the other to be finished with
        await until(lambda name=name: held(engine, name).model_seq > 0)
    assert held(engine).agent.policy.learner.fitted[0]
    await play(engine, "one", 40)
    await until(lambda: held(engine).agent.policy.estimator.identified[0])
    await until(lambda: not held(engine).agent.refit_due)
    await engine.add_arm("one", "d")
    await play(engine, "one", 3)
    await until(lambda: not held(engine).agent.refit_due)
    record = await engine.events("one")
    accepted = [event for event in record if event.kind == "model_accepted"]
    assert len(accepted) >= 2
    assert all(event.content.seen < event.seq for event in accepted)
    assert all(event.blob for event in accepted)
    assert_folds(engine, database)
    assert (await engine.health("one")).facts["identifications"] >= 1
    pid = engine._identification._process.pid
    await engine.close()
    assert not alive(pid)


@on_engine(identify=True)
async def test_the_process_is_there_before_it_is_needed(engine):
    """Until the first model a stream decides at random, so nobody should have to wait for a process to start."""
    await engine.create_stream(spec("plain", agent="ts-pco"))
    await asyncio.sleep(0.2)
    assert engine._identification._process is None
    await engine.create_stream(spec("other", **ADAPTIVE))
    await until(lambda: engine._identification._process is not None)
    pid = engine._identification._process.pid
    await engine.close()
    assert not alive(pid)


@on_engine(identify=True)
async def test_a_process_that_dies_is_started_again(engine):
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    await until(lambda: held(engine).model_seq > 0)
    pid = engine._identification._process.pid
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not alive(pid))
    before = held(engine).model_seq
    await play(engine, "one", 20)
    await until(lambda: held(engine).model_seq > before)
    assert engine._identification._process.pid != pid


@on_engine(identify=True)
async def test_a_process_that_dies_at_work_is_replaced_though_the_stream_is_quiet(engine, monkeypatch):
    died = []

    def identify(self, agent):
        if not died:
            self._ensure_running()
            died.append(self._process.pid)
            self._end()  # before it can answer
            return None
        return real(self, agent)

    real = IdentificationProcess.identify
    monkeypatch.setattr(IdentificationProcess, "identify", identify)
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    await until(lambda: held(engine).model_seq > 0, seconds=50.0)  # less than a claim lasts
    assert metric(engine, "identifications_failed_total") == 1
    assert died


@on_engine(identify=True)
async def test_two_engines_do_not_look_for_the_same_model(engine, url):
    one = engine
    async with opened(url, identify=True) as other:
        await one.create_stream(spec(**ADAPTIVE))
        for _ in range(4):
            await play(one, "one", 8)
            await play(other, "one", 8)
        await until(lambda: held(one, "one").model_seq > 0 or held(other, "one").model_seq > 0)
        await one.health("one")
        await other.health("one")
        accepted = metric(one, "models_accepted_total") + metric(other, "models_accepted_total")
        kinds = [event.kind for event in await one.events("one")]
        assert kinds.count("model_accepted") >= accepted > 0
    assert refolded(url, "one").version >= 2 * 64


def test_an_interrupt_from_the_terminal_is_not_for_it():
    """Which goes to all processes of the parent's group; it would end in a traceback."""
    identification = IdentificationProcess()
    identification.start()
    try:
        assert os.getpgid(identification._process.pid) != os.getpgid(0)
    finally:
        identification.close()


def test_it_is_gone_with_a_parent_that_was_killed(tmp_path):
    script = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from engine_tools import opened, spec, held, until
from service_play import ADAPTIVE, play

async def main():
    async with opened({str(tmp_path / "j.db")!r}, identify=True) as engine:
        await engine.create_stream(spec(**ADAPTIVE))
        await play(engine, "one", 9)
        await until(lambda: held(engine).model_seq > 0)
        print(engine._identification._process.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    (tmp_path / "service_play.py").write_text(Path(__file__).read_text())
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    try:
        child = int(parent.stdout.readline())
        assert alive(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    end = time.monotonic() + 30
    while alive(child):
        assert time.monotonic() < end
        time.sleep(0.02)
