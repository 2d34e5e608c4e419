"""After the warm-up, the package compiles no kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import halfseen
from halfseen.errors import HalfseenError
from halfseen.experiments import warmup
from halfseen.kernels.compiling import CACHE_DIR, QUIET

SOURCE, TESTS = Path(halfseen.__file__).parents[1], Path(__file__).parents[1]


def run(*arguments: str, cache: Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    own = {CACHE_DIR: str(cache), "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "COLUMNS": "200"}
    inherited = {key: value for key, value in os.environ.items() if key != QUIET}
    return subprocess.run(
        [sys.executable, *arguments], env=inherited | own, cwd=cwd, capture_output=True, text=True, check=False
    )


def test_all_kernels_are_listed():
    """Compare the list with the decorators in the source files."""
    found = set()
    for path in (SOURCE / "halfseen").rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE / "halfseen").with_suffix("").parts)
        names = re.findall(r"^@kernel\(.*\n(?:@.*\n)*def (\w+)", path.read_text(), re.MULTILINE)
        found |= {f"{module}.{name}" for name in names}
    assert set(warmup.all_kernels()) == found
    assert len(found) > 90


def test_check_lists_missing_kernels(tmp_path):
    done = run("-m", "halfseen", "warmup", "--check", cache=tmp_path)
    assert done.returncode == 1
    count = len(warmup.all_kernels())
    assert done.stdout.startswith(f"{count} of {count} kernels are not compiled: ")
    assert "kernels.filter.filter_series" in done.stdout
    assert done.stderr == ""
    assert not list(tmp_path.rglob("*.nb?"))


def test_bad_jobs_are_refused(tmp_path):
    done = run("-m", "halfseen", "warmup", "--jobs", "-1", cache=tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: jobs: expected an integer of at least 0, got -1\n")


def _die(name):
    os._exit(1)


def test_a_process_that_ends_early_is_an_error(monkeypatch):
    monkeypatch.setattr(warmup, "_run", _die)
    with pytest.raises(HalfseenError, match="A process that compiled kernels ended early"):
        warmup.compile_missing(1)


def _fail(name):
    raise HalfseenError(f"{name} failed")


def test_an_exception_in_a_process_is_raised(monkeypatch):
    monkeypatch.setattr(warmup, "_run", _fail)
    with pytest.raises(HalfseenError, match="failed"):
        warmup.compile_missing(1)


def test_a_compiled_kernel_is_not_missing(tmp_path):
    code = (
        "import numpy; from halfseen.experiments import warmup; from halfseen.kernels.checks import classify_values\n"
        "classify_values(numpy.ones((1, 1))); left = warmup.missing_kernels()\n"
        "print('kernels.checks.classify_values' in left, len(warmup.all_kernels()) - len(left))"
    )
    done = run("-c", code, cache=tmp_path)
    assert done.stdout == "False 1\n", done.stderr


EVERYTHING = """
import warnings
import numpy as np, halfseen as hs
from numba.core import event
from settings import context_argument, contexts_argument, make_small, simulate_rounds
from halfseen.worlds import NAMED, RECORDED

class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event): pass
compiled = []
event.register("numba:compile", Listener())
warnings.simplefilter("ignore", hs.HalfseenWarning)

for name in hs.catalog():
    agent, (xs, ys, noise) = make_small(name), simulate_rounds(90, missing=0.05)
    ids = []
    for x, y, e in zip(xs, ys, noise):
        y.setflags(write=False)
        decision = agent.decide(y, **context_argument(agent, x))
        decision.propensities
        ids.append(decision.id)
        if len(ids) > 5: agent.learn(ids.pop(0), float(e))
    agent.learn_many(ids, np.zeros(len(ids)))
    agent.health()
    if name not in ("bayes", "mts"): agent.add_arm()
    agent.retire_arm(0)
    if name.startswith("adaptive"): agent.refit()
    agent.save("a.hs"); agent = hs.load("a.hs"); agent.learn(agent.decide(ys[0], **context_argument(agent, xs[0])), 1.0)
    twin = make_small(name); twin.fold(ys, [0] * len(ys), noise, **contexts_argument(name, xs))
for world in [*NAMED, *RECORDED]:
    for name in hs.catalog():
        try:
            hs.run([name], world=world, rounds=60, seeds=2)
        except hs.HalfseenError:
            pass  # the agent requires a fact that this world does not have
ys = np.random.default_rng(0).standard_normal((120, 3))
for kind in ("diagonal", "full"):
    fit = hs.fit(ys, latent=4, observation_cov=kind, max_iterations=5)
hs.fit(ys, latent="auto", max_iterations=2)
ys[5, 1] = np.nan
fit.model.smooth(ys); fit.model.filter(ys[None])
tracker = fit.model.tracker()
for y in ys: tracker.step(y)
hs.examine(model=fit.model, observations=ys, arms=np.arange(120) % 3, rewards=ys[:, 0])
every_arm = ys + np.where(np.arange(120) % 7, 0.0, np.nan)[:, None]
hs.examine(model=fit.model, observations=ys, rewards=every_arm, contexts=ys[:, :1] * 0, hidden=every_arm)
agent = hs.make("adaptive", observed=3, arms=3, seed=0)
for t in range(240): agent.learn(agent.decide(ys[t % 120]), float(np.nan_to_num(ys[t % 120, 2])))
hs.examine(agent, rewards=np.tile(every_arm, (2, 1)), hidden=np.tile(every_arm, (2, 1)))
log = {"observation": ys.tolist(), "arm": [t % 3 for t in range(120)], "propensity": [1 / 3] * 120}
hs.evaluate(log | {"reward": every_arm[:, 0].tolist()}, ["uniform", "adaptive"], arms=3)
print(compiled)
"""


@pytest.mark.slow
def test_nothing_compiles_after_the_warm_up(tmp_path):
    cache, work = tmp_path / "cache", tmp_path / "work"
    work.mkdir()
    warmed = run("-m", "halfseen", "warmup", cache=cache)
    assert warmed.returncode == 0, warmed.stderr
    assert warmed.stderr == "compiling all numerical kernels, which is needed once per installation\n"
    assert f"kernels are compiled in {cache}/" in warmed.stdout
    checked = run("-m", "halfseen", "warmup", "--check", cache=cache)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"kernels are compiled in {cache}/" in checked.stdout
    script = work / "everything.py"
    script.write_text(EVERYTHING)
    done = run(str(script), cache=cache, cwd=work)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr == ""
