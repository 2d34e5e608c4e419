"""Pages of HTML, each from a template in `templates/` and plain data. A page needs nothing from outside."""

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
    """The text of a template, which says at its top what it needs. Everything in `data` is escaped."""
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
    """Rows with the same first cell together; all of them in one group if no two belong together."""
    groups = [list(group) for _, group in itertools.groupby(rows, key=itemgetter(0))]
    return [rows] if len(groups) == len(rows) else groups


def _svg_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
