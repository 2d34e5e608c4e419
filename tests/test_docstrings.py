"""Public docstrings are in NumPy style, and their examples run."""

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import halfseen as hs

MODULES = [
    module.name
    for module in pkgutil.walk_packages(hs.__path__, "halfseen.")
    if not module.name.endswith("__main__") and not module.ispkg
]
FUNCTIONS = [name for name in hs.__all__ if inspect.isfunction(getattr(hs, name))]
CLASSES = [name for name in hs.__all__ if inspect.isclass(getattr(hs, name))]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name, tmp_path, monkeypatch):
    module = importlib.import_module(name)
    if any(test.examples for test in doctest.DocTestFinder().find(module)):
        monkeypatch.chdir(tmp_path)
        assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_all_sections(name):
    text = inspect.getdoc(getattr(hs, name))
    signature = inspect.signature(getattr(hs, name))
    assert "Returns\n-------" in text
    assert "Examples\n--------" in text
    if signature.parameters:
        assert "Parameters\n----------" in text
        for parameter in signature.parameters:
            assert re.search(rf"^(\w+, )*(\*\*)?{parameter}\b.*", text, flags=re.MULTILINE), parameter


@pytest.mark.parametrize("name", CLASSES)
def test_a_public_class_and_its_methods_have_docstrings(name):
    public = getattr(hs, name)
    assert inspect.getdoc(public)
    for member, value in vars(public).items():
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(getattr(public, member)), f"{name}.{member}"
