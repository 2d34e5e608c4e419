"""Renders HTML pages from templates and plain data. A page is one file that loads no other files."""

from __future__ import annotations

import base64
import itertools
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from halfseen.errors import missing_extra
from halfseen.reports import tables

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **data: Any) -> str:
    """Render a template. A comment at the top of every template lists the `data` it needs. All data are escaped."""
    return _environment().get_template(template).render(**data)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise missing_extra("jinja2", "experiments", "writing the page") from None
    environment = Environment(
        loader=PackageLoader("halfseen.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["tables"] = tables
    environment.filters.update(
        counted=tables.count, groups=_groups, interval=tables.interval, number=tables.number, svg_uri=_svg_uri
    )
    return environment


def _groups(rows: list[list[Any]]) -> list[list[list[Any]]]:
    """Group consecutive rows with the same first cell. If all first cells differ, there is only one group."""
    groups = [list(group) for _, group in itertools.groupby(rows, key=itemgetter(0))]
    return [rows] if len(groups) == len(rows) else groups


def _svg_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
