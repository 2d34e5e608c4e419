"""Makes data frames of pandas, polars or pyarrow from columns of numbers or texts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from halfseen.errors import MissingExtra, invalid

LIBRARIES = ("pandas", "polars", "pyarrow")  # the first one that is installed is the default


def data_frame(columns: Mapping[str, Any], library: str | None = None) -> Any:
    """Return columns of equal length as a DataFrame of pandas or polars, or as an Arrow table."""
    if library is not None and library not in LIBRARIES:
        raise invalid("library", " or ".join(f"'{name}'" for name in LIBRARIES), repr(library))
    wanted = LIBRARIES if library is None else (library,)
    found = next((name for name in wanted if find_spec(name) is not None), None)
    if found is None:
        raise MissingExtra(f"to_frame needs {' or '.join(wanted)}; install it with: pip install {wanted[0]}")
    if found == "pyarrow":
        return import_module("pyarrow").table(dict(columns))
    return import_module(found).DataFrame(dict(columns))


def number_or_nan(value: float | None) -> float:
    """Return the number, or NaN for None."""
    return math.nan if value is None else float(value)
