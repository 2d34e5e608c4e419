"""health() is correct about the use of the hidden block in the worlds of the leaderboard."""

import numpy as np
import pytest
from benchmarks.hidden_block import WORLDS, truth_and_verdicts

from halfseen.worlds import named

# How much the hidden block helps, as measured by benchmarks.hidden_block and documented in docs/how-to/health.md.
TRUTH = {
    "paper ε=0.01": "little",
    "paper ε=0.1": "little",
    "paper ε=1": "little",
    "orbit": "much",
    "keyhole": "much",
    "foggy-keyhole": "much",
    "fog": "little",
    "switch": "much",
}
CASES = list(WORLDS)
QUICK = ("keyhole", "foggy-keyhole", "fog")


def check(name, options, seeds):
    world = named(name, **options)
    shares, verdicts = truth_and_verdicts(world, seeds, 3000)
    added = shares[:, 2] - shares[:, 1]
    expected = TRUTH[world.name]
    assert (added > 0.25).all() if expected == "much" else (added < 0.015).all()
    assert [hidden for hidden, _ in verdicts] == [expected] * len(seeds)
    if world.name == "fog":  # sensors are noisy, so filtering helps, but hidden coordinates do not
        assert (shares[:, 1] - shares[:, 0] > 0.1).all()
        assert [filtering for _, filtering in verdicts] == ["much"] * len(seeds)
    if world.name.startswith("paper"):
        assert [filtering for _, filtering in verdicts] == ["little"] * len(seeds)
    assert np.isfinite(shares).all()


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] in QUICK], ids=str)
def test_findings_are_correct_for_one_seed_of_some_worlds(name, options):
    check(name, options, (0,))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_findings_are_correct_for_twenty_seeds_of_every_world(name, options):
    check(name, options, tuple(range(20)))
