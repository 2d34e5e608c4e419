"""Save files, states and models with hostile values, each of which must be refused or leave an agent that works.

    PYTHONPATH=src:tests python tests/contracts/hostile_cases.py --cases 20000
    PYTHONPATH=src:tests python tests/contracts/hostile_cases.py --first 4711 --cases 1

Case number n is a function of n alone. The cases run in a child process, because a kernel that reads or writes out of
bounds ends the process. A child that dies or stops is replaced, and its last case is reported.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from select import select
from typing import Any

import numpy as np
from settings import (
    ARMS,
    OBSERVED,
    context_argument,
    contexts_argument,
    make_small,
    simulate_rounds,
    small_options,
    state_bytes,
)

import halfseen as hs
from halfseen.agents import saving

ROUNDS = 45
GUARDRAILS = {"floor": 0.05, "holdback": 0.2, "control": (1, 0.1)}
MAX_MEMORY = 6 << 30  # bytes of address space of a child; more is a MemoryError
MAX_SECONDS = 60  # for one case
NO_CASE = "before the first case"

INTEGERS = (
    -(2**63),
    -(2**62),
    -(10**6),
    -2,
    -1,
    0,
    1,
    2,
    3,
    5,
    44,
    45,
    46,
    10**6,
    2**31,
    2**32,
    2**53,
    2**62,
    2**63 - 1,
)
FLOATS = (
    np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, -1e200, 1e154, 1e100, 1e30, -1e30, 1e8, 2.0, 1.0, -1.0, 0.0, -0.0,
    1e-8, 1e-200, 5e-324,
)  # fmt: skip
JSON_VALUES = (
    -1, 0, 1, 2, 7, 10**4, 10**6, 10**9, 10**12, 2**63, 2**64, 10**30, -(10**30), 0.0, -0.5, 0.5, 1e-300, 1e308,
    float("nan"), float("inf"), True, False, None, "", "auto", "nobody", "\0", [], {}, [1], [[1.0, 2.0], [3.0]],
    ["a", "b", "c", "d"], ["a", "a", "b", "b"], [None], {"name": "x"}, {"$array": "nobody"}, {"$array": 3},
    {"$model": 3}, {"$model": {}},
)  # fmt: skip


# ---------------------------------------------------------------------- subjects


def family_options(name: str, family: str) -> dict[str, str]:
    """Return the option for the family of the rewards, for agents that have this option."""
    return {"reward_family": family} if "reward_family" in hs.catalog()[name].options else {}


def played_agent(name: str, family: str = "gaussian") -> hs.Agent:
    """Return an agent with guardrails, a history, missing entries, open decisions and a provisional reward."""
    agent = make_small(name, **GUARDRAILS, **family_options(name, family))
    xs, ys, noise = simulate_rounds(ROUNDS, missing=0.05)
    if family != "gaussian":
        noise = (noise > 0.0).astype(float)
    ids: list[int] = []
    for x, y, reward in zip(xs, ys, noise, strict=True):
        ids.append(agent.decide(y, **context_argument(agent, x)).id)
        if len(ids) > 4:
            agent.learn(ids.pop(0), float(reward))
    if agent.takes_provisional:
        agent.learn(ids[0], 0.5, provisional=True)
    return agent


@cache
def agent_state(name: str, family: str = "gaussian") -> dict[str, Any]:
    return played_agent(name, family).state()


@cache
def fleet_state(name: str, family: str = "gaussian") -> dict[str, Any]:
    fleet, (xs, ys, _) = make_fleet(name, family), simulate_rounds(12)
    fleet.add(["a", "b"], seeds=[1, 2])
    fleet.add(1)
    given = contexts_argument(name, xs[:3])
    for y in ys:
        decisions = fleet.decide(np.stack([y, -y, 2.0 * y]), **given)
        fleet.learn(decisions.ids[:2], [1.0, 0.5])
    return fleet.state()


@cache
def identified_model(name: str, family: str = "gaussian") -> dict[str, Any]:
    agent = make_small(name, **family_options(name, family))
    agent.restore(agent_state(name, family))
    agent.refit()
    return agent.model()


def make_fleet(name: str, family: str = "gaussian") -> hs.Fleet:
    options = small_options(name) | family_options(name, family)
    return hs.Fleet(name, observed=OBSERVED, arms=ARMS, **options, **GUARDRAILS)


# ---------------------------------------------------------------------- hostile values


def change_array(rng: np.random.Generator, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Return a description and a changed copy of an array."""
    changed = array.copy()
    if rng.random() < 0.1 or not array.size:
        kind = rng.choice(["longer", "shorter", "empty", "scalar", "float32", "int32", "text", "swapped", "wider"])
        others = {
            "longer": lambda: np.concatenate([array, array]) if array.ndim else array,
            "shorter": lambda: array[:-1] if array.ndim else array,
            "empty": lambda: array[:0] if array.ndim else array,
            "scalar": lambda: np.array(0, dtype=array.dtype),
            "float32": lambda: np.zeros(array.shape, np.float32),
            "int32": lambda: np.zeros(array.shape, np.int32),
            "text": lambda: np.full(array.shape, "x"),
            "swapped": lambda: array.astype(array.dtype.newbyteorder()),
            "wider": lambda: array[..., None],
        }
        return str(kind), others[str(kind)]()
    where: Any = [0, -1, int(rng.integers(array.size)), slice(None)][rng.integers(4)]
    if array.dtype.kind == "b":
        changed.flat[where] = ~changed.flat[where]
        return f"[{where}] inverted", changed
    if array.dtype.kind == "U":
        changed.flat[where] = ["", "a", "\0", "b"][rng.integers(4)]
        return f"[{where}] renamed", changed
    if array.dtype.kind in "iu":
        value = int(rng.choice(np.array(INTEGERS, dtype=object)))
        if array.dtype.kind == "u" or rng.random() < 0.3:
            value = int(changed.flat[where if isinstance(where, int) else 0]) + int(rng.integers(-3, 4))
        info = np.iinfo(array.dtype)
        value = min(max(value, info.min), info.max)
        changed.flat[where] = value
        return f"[{where}] = {value}", changed
    kind = rng.integers(5)
    if kind == 0:
        changed = rng.normal(size=array.shape) * 10.0 ** rng.uniform(-8, 8)
        return "random numbers", changed
    if kind == 1:
        factor = [-1.0, 0.0, 1e-200, 1e8, 1e100, 1e200][rng.integers(6)]
        with np.errstate(all="ignore"):
            changed.flat[where] = changed.flat[where] * factor
        return f"[{where}] times {factor}", changed
    value = FLOATS[rng.integers(len(FLOATS))]
    changed.flat[where] = value
    return f"[{where}] = {value}", changed


def change_state(rng: np.random.Generator, state: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a description and a copy of a state in which one to three arrays are changed."""
    names = rng.choice(sorted(state), size=min(len(state), int(rng.choice([1, 1, 2, 3]))), replace=False)
    changes, state = [], dict(state)
    for name in map(str, names):
        if rng.random() < 0.01:
            del state[name]
            changes.append(f"without {name}")
            continue
        change, state[name] = change_array(rng, state[name])
        changes.append(f"{name} {change}")
    return ", ".join(changes), state


def change_recipe(rng: np.random.Generator, recipe: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    known = list(hs.catalog()[recipe["name"]].options)
    name = str(rng.choice([*recipe, *known, "added", "unknown"]))
    if rng.random() < 0.1:
        return f"recipe without {name}", {key: value for key, value in recipe.items() if key != name}
    value = JSON_VALUES[rng.integers(len(JSON_VALUES))]
    if isinstance(recipe.get(name), np.ndarray):
        change, value = change_array(rng, recipe[name])
        return f"recipe {name} {change}", recipe | {name: value}
    return f"recipe {name} = {value!r}", recipe | {name: value}


# ---------------------------------------------------------------------- cases


def use_agent(agent: hs.Agent, folder: Path) -> None:
    """Use an agent in all ways. A HalfseenError is allowed in each of them, anything else is not."""
    xs, ys, _ = simulate_rounds(6, seed=5, missing=0.1)

    def attempt(act: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return act(*arguments, **options)
        except hs.HalfseenError:
            return None

    for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
        decision = attempt(agent.decide, y[: agent.recipe["observed"]], **context_argument(agent, x))
        if decision is not None:
            assert 0 <= decision.index < len(agent.arms), decision.index
            assert decision.arm in agent.active_arms, decision.arm
            decision.propensities.sum()
            if t % 2:
                attempt(agent.learn, decision, 1.0)
    for decision_id in agent.pending[:6]:
        attempt(agent.learn, decision_id, -1.0)
    for decision_id in agent.pending[:2]:
        attempt(agent.give_up, decision_id)
    if agent.policy.can_refit:
        agent.refit()
        agent.decide(ys[0])
    attempt(agent.add_arm)
    attempt(agent.retire_arm, agent.arms[0])
    attempt(agent.decide, ys[0], **context_argument(agent, xs[0]))
    agent.health()
    agent.save(folder / "again.hs")
    attempt(hs.load, folder / "again.hs")


def use_fleet(fleet: hs.Fleet, name: str, folder: Path) -> None:
    xs, ys, _ = simulate_rounds(4, seed=5)
    count = len(fleet)
    for x, y in zip(xs, ys, strict=True):
        decisions = fleet.decide(np.tile(y, (count, 1)), **contexts_argument(name, np.tile(x, (count, 1))))
        decisions.propensities.sum()
        assert (fleet._pending.arms >= 0).all()
        try:
            fleet.learn(decisions.ids[1:], np.ones(max(0, count - 1)))
            if count:
                fleet.learn(fleet.pending(fleet.streams[0])[:3], np.ones(len(fleet.pending(fleet.streams[0])[:3])))
        except hs.HalfseenError:
            pass
    fleet.health()
    fleet.add(1)
    fleet.save(folder / "again.hs")
    try:
        hs.load(folder / "again.hs")
        if count:
            use_agent(fleet.agent(int(fleet.streams[0])), folder)
    except hs.HalfseenError:
        pass


def run_case(number: int, folder: Path) -> str:
    """Run a case and return its description, which is printed before anything dangerous happens."""
    rng = np.random.default_rng([2718, number])
    name = str(rng.choice(list(hs.catalog())))
    kinds = ["file"] * 4 + ["recipe"] * 2 + ["restore"] * 3 + ["fleet file", "fleet restore", "fleet recipe"]
    if hs.catalog()[name].estimator.__name__ == "Adaptive":
        kinds += ["accept"] * 5 + ["accept by a new agent"]
    kind = str(rng.choice(kinds))
    path = folder / "hostile.hs"
    family = str(np.random.default_rng([2718, number, 1]).choice(["gaussian", "binary", "count"]))
    if "reward_family" not in hs.catalog()[name].options:
        family = "gaussian"
    of_family = family_options(name, family)

    def describe(change: str) -> None:
        print(f"case {number}: {kind}, {name} ({family}): {change}", flush=True)

    if kind in ("file", "recipe"):
        recipe, state = make_small(name, **of_family).recipe, agent_state(name, family)
        if kind == "recipe":
            change, recipe = change_recipe(rng, recipe)
        else:
            change, state = change_state(rng, state)
        describe(change)
        saving.write(path, recipe, state)
        try:
            loaded = hs.load(path)
        except hs.HalfseenError:
            return "refused"
        use_agent(loaded, folder)
        return "used"
    if kind == "restore":
        change, state = change_state(rng, agent_state(name, family))
        describe(change)
        agent = make_small(name, **of_family)
        before = state_bytes(agent)
        try:
            agent.restore(state)
        except hs.HalfseenError:
            assert state_bytes(agent) == before, "a refused state changed the agent"
            return "refused"
        use_agent(agent, folder)
        return "used"
    if kind.startswith("accept"):
        change, model = change_state(rng, identified_model(name, family))
        describe(change)
        agent = make_small(name, **of_family)
        if kind == "accept":
            agent.restore(agent_state(name, family))
        before = state_bytes(agent)
        try:
            agent.accept(model)
        except hs.HalfseenError:
            assert state_bytes(agent) == before, "a refused model changed the agent"
            return "refused"
        use_agent(agent, folder)
        return "used"
    fleet, state = make_fleet(name, family), fleet_state(name, family)
    recipe = fleet._recipe
    if kind == "fleet recipe":
        change, recipe = change_recipe(rng, recipe)
    else:
        change, state = change_state(rng, state)
    describe(change)
    try:
        if kind == "fleet restore":
            fleet.restore(state)
        else:
            saving.write(path, recipe, state, kind=saving.FLEET_KIND)
            fleet = hs.load(path)
    except hs.HalfseenError:
        return "refused"
    use_fleet(fleet, name, folder)
    return "used"


def run_cases(first: int, stop: int) -> None:
    """Run cases in this process, and print a line before and after each."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, stop):
            try:
                outcome = run_case(number, Path(folder))
            except Exception as error:
                place = error.__traceback__
                while place is not None and place.tb_next is not None:
                    place = place.tb_next
                where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
                outcome = f"failed {type(error).__name__}: {' '.join(str(error).split())[:200]} at {where}"
            print(f"done {outcome}", flush=True)


def run_in_children(first: int, count: int) -> tuple[dict[str, int], list[str]]:
    """Run cases in child processes. Returns the number of cases by outcome, and a line for each failure."""
    counts, failures, number, stop = {"refused": 0, "used": 0}, [], first, first + count
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    while number < stop:
        command = [sys.executable, __file__, "--child", "--first", str(number), "--cases", str(stop - number)]
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
            assert child.stdout is not None
            case, number, ended = NO_CASE, number - 1, ""
            while not ended:
                if not select([child.stdout], [], [], MAX_SECONDS)[0]:
                    child.kill()
                    ended = f"no result after {MAX_SECONDS} seconds"
                    break
                line = child.stdout.readline()
                if not line:
                    ended = f"the process ended with {child.wait()}"
                elif line.startswith("case "):
                    case = line.strip()
                    number = int(case.split()[1].rstrip(":"))
                elif line.startswith("done "):  # LAPACK prints lines of its own
                    outcome = line.strip().removeprefix("done ")
                    if outcome in counts:
                        counts[outcome] += 1
                    else:
                        failures.append(f"{case}: {outcome}")
                    case = ""
            child.wait()
            child.stdout.close()
            if case:
                errors.seek(0)
                failures.append(f"{case}: {ended} {errors.read()[-600:]}")
        if case == NO_CASE:
            break
        number += 1
    return counts, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, default=300, help="how many cases")
    parser.add_argument("--child", action="store_true", help="run the cases in this process")
    arguments = parser.parse_args()
    if arguments.child:
        run_cases(arguments.first, arguments.first + arguments.cases)
        return
    counts, failures = run_in_children(arguments.first, arguments.cases)
    print(*failures, f"{counts}, {len(failures)} failures", sep="\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
