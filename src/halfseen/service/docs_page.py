"""The page at /docs. It shows the OpenAPI description as HTML, with a curl command for each route."""

from __future__ import annotations

import json
import re
from typing import Any

from halfseen.reports.pages import render

_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_WITHOUT_TOKEN = ("/healthz", "/readyz")
_FILE = "journal.ndjson"


def docs_page(description: dict[str, Any], host: str, *, tokens: bool) -> str:
    """Render the page. `host` is the address in the curl commands; `tokens` says whether requests need a token."""
    address = f"http://{host if _HOST.fullmatch(host) else '127.0.0.1:8400'}"
    routes = [
        {
            "path": path,
            "method": method,
            "operation": operation,
            "anchor": method + "".join(letter if letter.isalnum() else "-" for letter in path),
            "curl": _curl(address, path, method, operation, tokens=tokens),
        }
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    routes.sort(key=_order)
    return render(
        "docs.html",
        info=description["info"],
        routes=routes,
        schemas=description["components"]["schemas"],
        tokens=tokens,
    )


def docs_style() -> str:
    return render("docs.css")


def _order(route: dict[str, Any]) -> tuple[int, str, int]:
    """Sort the routes so that their curl commands work one after the other.

    A stream is created first and retired last. In between, decisions and rewards come before the other routes.
    """
    path, method = route["path"], route["method"]
    if (path, method) == ("/v1/streams", "post"):
        group = 0
    elif (path, method) == ("/v1/streams/{name}", "delete"):
        group = 3
    else:
        group = 1 if route["operation"].get("tags") == ["decisions"] else 2
    return group, path, ("get", "post", "put", "delete").index(method)


def _curl(address: str, path: str, method: str, operation: dict[str, Any], *, tokens: bool) -> str:
    """Return a curl command that can be run without changes."""
    content = operation.get("requestBody", {}).get("content", {})
    is_default = method == "get" or (method == "post" and content)  # the method that curl uses without -X
    parts = [f"curl{'' if is_default else f' -X {method.upper()}'} {address}{path.format(name='demo', arm='c')}"]
    if tokens and path not in _WITHOUT_TOKEN:
        parts.append('-H "Authorization: Bearer $TOKEN"')
    example = next((kind["example"] for kind in content.values() if "example" in kind), None)
    if example is not None:
        parts.append(f"-d '{json.dumps(example)}'")
    elif content:
        parts.append(f"--data-binary @{_FILE}")
    elif (path, method) == ("/v1/journal", "get"):
        parts.append(f"-o {_FILE}")
    return " \\\n  ".join(parts)
