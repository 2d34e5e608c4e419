"""The examples in CONTRIBUTING.md run, and their agents pass the tests that every agent must pass."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from contracts import test_every_agent, test_every_fleet, test_hostile_states, test_live_streams, test_provisional

from halfseen.agents import catalogue
from halfseen.experiments.warmup import all_kernels
from halfseen.kernels import compiling

ROOT = Path(__file__).parents[2]
AGENTS = list(catalogue.CATALOG)
EXAMPLES = ["ewma-ts", "mean-ts", "pco-softmax"]


def blocks():
    """Yield the blocks of code, each with the last path that the text before the block names."""
    before, *parts = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("```python\n")
    for part in parts:
        path = re.findall(r"`((?:src|tests)/[^`]+)\.py`", before)[-1]
        code, _, before = part.partition("```")
        yield path, code


@pytest.fixture
def examples(monkeypatch):
    """Return the modules of the examples by path, after adding their agents to the catalogue."""
    monkeypatch.setattr(compiling, "KERNELS", dict.fromkeys(all_kernels()))  # the examples add their kernels to a copy
    modules = {}
    for path, code in blocks():
        name = path.removeprefix("src/").replace("/", ".")
        module = modules[path] = ModuleType(name)
        if (ROOT / f"{path}.py").exists():
            vars(module).update(vars(import_module(name)))
        else:
            monkeypatch.setitem(sys.modules, name, module)
        exec(compile(code, f"<{path}>", "exec"), vars(module))
        if module.__name__ == catalogue.__name__:
            for entry in module._ENTRIES[1:]:
                monkeypatch.setitem(catalogue.CATALOG._entries, entry.name, entry)
    return modules


def find_tests(module, parameters):
    """Return the tests of a module that have these parameters and run for every agent."""
    tests = [one for key, one in vars(module).items() if key.startswith("test_") and inspect.isfunction(one)]
    return [
        one
        for one in tests
        if list(inspect.signature(one).parameters) == parameters
        and all(mark.args[1] == AGENTS for mark in getattr(one, "pytestmark", []))
    ]


MODULES = (test_every_agent, test_every_fleet, test_hostile_states, test_live_streams, test_provisional)
CONTRACT = [test for module in MODULES for test in find_tests(module, ["name"])]


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("test", CONTRACT, ids=lambda test: test.__name__)
def test_the_agents_of_the_examples_pass_the_contract_tests(name, test, examples):
    test(name)


def test_the_tests_of_the_examples_pass(examples):
    tests = [test for path in examples if path.startswith("tests/") for test in find_tests(examples[path], [])]
    assert len(tests) == 3
    for test in tests:
        test()


def test_there_is_an_example_of_each_kind(examples):
    assert set(EXAMPLES) <= set(catalogue.CATALOG)
    assert len(CONTRACT) > 20
    world = examples["src/halfseen/worlds/named"].many_arms()
    assert world.begin([1, 2]).advance(3).expected.shape == (3, 2, 30)


def test_the_files_and_names_in_the_text_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    new = {f"{path}.py" for path, _ in blocks()}
    for path in set(re.findall(r"`((?:src|tests|docs|benchmarks)/[^`*]+)`", text)) - new:
        assert (ROOT / path).exists(), path
    for name, path in re.findall(r"`(\w+)` in\s+`([\w/]+\.py)`", text):
        found = [root / path for root in (ROOT, ROOT / "src/halfseen") if (root / path).exists()]
        assert found, path
        assert re.search(rf"\b{name}\b", found[0].read_text(encoding="utf-8")), f"{name} in {path}"
