"""Every catalogued agent makes the same decisions with compiled kernels and with the same kernels run as Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
from settings import context_argument, make_small, simulate_rounds

import halfseen as hs

ADAPTIVE_ROUNDS = 12  # few, because identification takes seconds in Python


def play() -> dict[str, list[list[float]]]:
    """Return the arm, the propensities and the expected rewards of every round, for every agent."""
    played = {}
    for name in hs.catalog():
        agent, (contexts, ys, noise) = make_small(name), simulate_rounds(60, missing=0.1)
        rounds = ADAPTIVE_ROUNDS if name.startswith("adaptive") else len(ys)
        rows, pending = [], []
        for t in range(rounds):
            decision = agent.decide(ys[t], **context_argument(agent, contexts[t]))
            rows.append([decision.index, *decision.propensities, *np.nan_to_num(decision.expected)])
            pending.append(decision.id)
            if t % 3:
                agent.learn(pending.pop(0), float(noise[t]))
        if name.startswith("adaptive"):
            agent.refit()
            decision = agent.decide(ys[-1])
            rows.append([decision.index, *decision.propensities, *np.nan_to_num(decision.expected)])
        played[name] = np.array(rows, dtype=float).tolist()
    return played


def test_compiled_kernels_decide_as_python_does() -> None:
    python_path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(hs.__file__).parents[1])])
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": python_path}
    process = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    interpreted = json.loads(process.stdout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hs.HalfseenWarning)
        compiled = play()
    assert compiled.keys() == interpreted.keys() == hs.catalog().keys()
    for name, rows in compiled.items():
        np.testing.assert_allclose(rows, interpreted[name], rtol=1e-7, atol=1e-9, err_msg=name)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the integers of the random generator overflow on purpose
    print(json.dumps(play()))
