"""Every catalogued agent decides alike with kernels compiled and with kernels run as the Python they are written in.

So each kernel of an agent is compared with itself, uncompiled: the compiler, its flags and its machine code drop out.
"""

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

FEW = 12  # rounds, of those whose identification takes seconds in Python


def play() -> dict[str, list[list[float]]]:
    """The arm, the propensities and what every arm is expected to pay, round by round, of every agent."""
    played = {}
    for name in hs.catalog():
        agent, (contexts, ys, noise) = make_small(name), simulate_rounds(60, missing=0.1)
        rounds = FEW if name.startswith("adaptive") else len(ys)
        rows, late = [], []
        for t in range(rounds):
            decision = agent.decide(ys[t], **context_argument(agent, contexts[t]))
            rows.append([decision.index, *decision.propensities, *np.nan_to_num(decision.expected)])
            late.append(decision.id)
            if t % 3:
                agent.learn(late.pop(0), float(noise[t]))
        if name.startswith("adaptive"):
            agent.refit()
            decision = agent.decide(ys[-1])
            rows.append([decision.index, *decision.propensities, *np.nan_to_num(decision.expected)])
        played[name] = np.array(rows, dtype=float).tolist()
    return played


def test_compiled_and_not_they_decide_alike() -> None:
    found = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(hs.__file__).parents[1])])
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": found}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    interpreted = json.loads(done.stdout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hs.HalfseenWarning)
        compiled = play()
    assert compiled.keys() == interpreted.keys() == hs.catalog().keys()
    for name, rows in compiled.items():
        np.testing.assert_allclose(rows, interpreted[name], rtol=1e-7, atol=1e-9, err_msg=name)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # whole numbers of NumPy that are meant to overflow
    print(json.dumps(play()))
