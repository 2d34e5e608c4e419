"""Models are identified in a separate process and recorded as events."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from engine_tools import (
    assert_matches_journal,
    decide,
    fold_from_journal,
    loaded_stream,
    metric,
    on_engine,
    open_engine,
    reward,
    spec,
    wait_until,
)

from halfseen.service.engine.identification import IdentificationProcess

ADAPTIVE = {"agent": "adaptive", "observed": 2, "options": {"latent": 2, "history": 300}}


async def play(engine, name: str, rounds: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    x = 0.0
    for _ in range(rounds):
        x = 0.9 * x + rng.normal()
        made = await decide(engine, [x + 0.1 * rng.normal(), rng.normal()], name=name)
        await reward(engine, made, x if made.arm == "a" else -x, name=name)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@on_engine(identify=True)
async def test_models_are_identified_early_and_recorded_and_fold_exactly(engine, database):
    for name in ("one", "two"):
        await engine.create_stream(spec(name, **ADAPTIVE))
    await asyncio.gather(play(engine, "one", 10), play(engine, "two", 10))
    for name in ("one", "two"):  # the streams take turns
        await wait_until(lambda name=name: loaded_stream(engine, name).model_seq > 0)
    assert loaded_stream(engine).agent.policy.learner.fitted[0]
    await play(engine, "one", 40)
    await wait_until(lambda: loaded_stream(engine).agent.policy.estimator.identified[0])
    await wait_until(lambda: not loaded_stream(engine).agent.refit_due)
    await engine.add_arm("one", "d")
    await play(engine, "one", 3)
    await wait_until(lambda: not loaded_stream(engine).agent.refit_due)
    accepted = [event for event in await engine.events("one") if event.kind == "model_accepted"]
    assert len(accepted) >= 2
    assert all(event.content.seen < event.seq for event in accepted)
    assert all(event.blob for event in accepted)
    assert_matches_journal(engine, database)
    assert (await engine.health("one")).facts["identifications"] >= 1
    pid = engine._identification._process.pid
    await engine.close()
    assert not is_alive(pid)


@on_engine(identify=True)
async def test_the_process_is_started_before_it_is_needed(engine):
    """A stream decides at random until its first model, so it should not have to wait until the process has started."""
    await engine.create_stream(spec("plain", agent="ts-pco"))
    await asyncio.sleep(0.2)
    assert engine._identification._process is None
    await engine.create_stream(spec("other", **ADAPTIVE))
    await wait_until(lambda: engine._identification._process is not None)
    pid = engine._identification._process.pid
    await engine.close()
    assert not is_alive(pid)


@on_engine(identify=True)
async def test_an_idle_process_that_dies_is_started_again(engine):
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    await wait_until(lambda: loaded_stream(engine).model_seq > 0)
    pid = engine._identification._process.pid
    os.kill(pid, signal.SIGKILL)
    await wait_until(lambda: not is_alive(pid))
    before = loaded_stream(engine).model_seq
    await play(engine, "one", 20)
    await wait_until(lambda: loaded_stream(engine).model_seq > before)
    assert engine._identification._process.pid != pid


@on_engine(identify=True)
async def test_a_task_whose_process_dies_is_repeated_without_new_requests(engine, monkeypatch):
    died = []

    def identify(self, agent):
        if not died:
            self._ensure_running()
            died.append(self._process.pid)
            self._end()  # before the process can reply
            return None
        return real(self, agent)

    real = IdentificationProcess.identify
    monkeypatch.setattr(IdentificationProcess, "identify", identify)
    await engine.create_stream(spec(**ADAPTIVE))
    await play(engine, "one", 9)
    await wait_until(lambda: loaded_stream(engine).model_seq > 0, seconds=50.0)  # a claim lasts longer
    assert metric(engine, "identifications_failed_total") == 1
    assert died


@on_engine(identify=True)
async def test_two_engines_do_not_identify_the_same_model(engine, url):
    one = engine
    async with open_engine(url, identify=True) as other:
        await one.create_stream(spec(**ADAPTIVE))
        for _ in range(4):
            await play(one, "one", 8)
            await play(other, "one", 8)
        await wait_until(lambda: loaded_stream(one, "one").model_seq > 0 or loaded_stream(other, "one").model_seq > 0)
        await one.health("one")
        await other.health("one")
        accepted = metric(one, "models_accepted_total") + metric(other, "models_accepted_total")
        kinds = [event.kind for event in await one.events("one")]
        assert kinds.count("model_accepted") >= accepted > 0
    assert fold_from_journal(url, "one").version >= 2 * 64


def test_an_interrupt_from_the_terminal_does_not_reach_the_process():
    """An interrupt goes to all processes of the parent's process group and would print a traceback."""
    identification = IdentificationProcess()
    identification.start()
    try:
        assert os.getpgid(identification._process.pid) != os.getpgid(0)
    finally:
        identification.close()


def test_the_process_ends_when_its_parent_is_killed(tmp_path):
    script = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from engine_tools import loaded_stream, open_engine, spec, wait_until
from service_play import ADAPTIVE, play

async def main():
    async with open_engine({str(tmp_path / "j.db")!r}, identify=True) as engine:
        await engine.create_stream(spec(**ADAPTIVE))
        await play(engine, "one", 9)
        await wait_until(lambda: loaded_stream(engine).model_seq > 0)
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
        assert is_alive(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    end = time.monotonic() + 30
    while is_alive(child):
        assert time.monotonic() < end
        time.sleep(0.02)
