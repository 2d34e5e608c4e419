"""A small version of the paper's experiment, and the files that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from experiments.synthetic import fabricate, power

from halfseen.experiments import result as result_module
from halfseen.experiments.claims import evaluate_claims
from halfseen.experiments.reproduce import AGENTS, paper_experiment, save_reproduction
from halfseen.experiments.run import run_experiment

FILES = ["regret.png", "regret.svg", "report.html", "rounds.parquet", "summary.json"]


def test_the_papers_experiment() -> None:
    plan = paper_experiment()
    assert [world.name for world in plan.worlds] == [
        *("paper ε=0.01", "paper ε=0.1", "paper ε=1", "paper ε=0.001 Σ=0.1", "orbit")
    ]
    assert tuple(spec.label for spec in plan.agents) == AGENTS
    assert (plan.rounds, plan.seeds) == (10_000, tuple(range(20)))
    quick = paper_experiment(quick=True, seeds=7)
    assert quick.rounds < 10_000
    assert len(quick.seeds) == 7


def test_reproduce_end_to_end(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    calls = []
    plan = paper_experiment(rounds=250, seeds=2, noise=[0.5], agents=["emkf-ts", "ts-pco"])
    result = run_experiment(plan, progress=lambda *done: calls.append(done))
    claims = evaluate_claims(result)
    assert calls[-1] == (2 * 3 * 2 * 250, 2 * 3 * 2 * 250)
    paths = save_reproduction(result, claims, tmp_path / "a" / "b")
    assert [path.name for path in paths] == FILES
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == FILES
    summary = json.loads((tmp_path / "a" / "b" / "summary.json").read_text())
    assert [claim["title"] for claim in summary["claims"]] == [claim.title for claim in claims]
    assert [claim["verdicts"] for claim in summary["claims"]] == [claim.verdicts for claim in claims]
    rounds = pq.read_table(tmp_path / "a" / "b" / "rounds.parquet").to_pydict()
    first = [
        regret
        for world, agent, seed, regret in zip(
            rounds["world"], rounds["agent"], rounds["seed"], rounds["regret"], strict=True
        )
        if (world, agent, seed) == ("orbit", "emkf-ts", 1)
    ]
    assert sum(first) == pytest.approx(summary["worlds"]["orbit"]["agents"]["emkf-ts"]["regret_by_seed"][1], rel=1e-4)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_no_file_remains_if_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise error

    result = fabricate(["emkf-ts"], lambda *_: power(0.5))
    monkeypatch.setattr(result_module, "write_rounds", fail)
    with pytest.raises(error):
        save_reproduction(result, evaluate_claims(result), tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
