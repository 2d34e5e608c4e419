"""The page at /docs: the OpenAPI description as plain HTML, with a line of curl for each route and no script."""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any

_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_OPEN = ("/healthz", "/readyz")  # to everybody
_FILE = "journal.ndjson"

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code, pre { font: 0.9rem/1.4 ui-monospace, monospace; }
pre { background: var(--soft); overflow-x: auto; padding: 0.75rem; }
section { border-top: 1px solid var(--line); padding-top: 0.5rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
td, th { border: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: left; vertical-align: top; }
nav li { display: inline-block; margin-right: 1rem; }
a:focus-visible { outline: 3px solid; }
"""


def page(description: dict[str, Any], host: str, *, tokens: bool) -> str:
    """`host` is how whoever reads it has come here, and `tokens` whether requests want one."""
    address = f"http://{host if _HOST.fullmatch(host) else '127.0.0.1:8400'}"
    schemas = description["components"]["schemas"]
    operations = [
        (path, method, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    operations.sort(key=_place)
    links = "".join(
        f'<li><a href="#{_anchor(path, method)}">{escape(_summary(operation))}</a></li>'
        for path, method, operation in operations
    )
    sections = "".join(_section(*found, _curl(address, *found, tokens=tokens)) for found in operations)
    info = description["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(info["title"])}</title><link rel="stylesheet" href="/docs.css"></head><body>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>"
        '<p>For programs: <a href="/openapi.json">openapi.json</a>. A refusal is always '
        '<code>{"error": {"code", "message"}}</code>.</p>'
        f"<p>The lines of curl work in this order; put the id of a decision in the place of ID{_about_tokens(tokens)}. "
        "What was exported is to be imported into another service, where its streams are new.</p>"
        f"<nav aria-label='Routes'><ul>{links}</ul></nav><main>{sections}</main>"
        f"<h2>Shapes</h2>{''.join(_shape(name, schemas[name]) for name in sorted(schemas))}</body></html>"
    )


def _about_tokens(tokens: bool) -> str:
    return ", and a token into TOKEN in your shell" if tokens else ""


def _place(found: tuple[str, str, dict[str, Any]]) -> tuple[int, str, int]:
    """A stream is made first and retired last; decisions and rewards are what it is about."""
    path, method, operation = found
    if (path, method) == ("/v1/streams", "post"):
        turn = 0
    elif (path, method) == ("/v1/streams/{name}", "delete"):
        turn = 3
    else:
        turn = 1 if operation.get("tags") == ["decisions"] else 2
    return turn, path, ("get", "post", "delete").index(method)


def _curl(address: str, path: str, method: str, operation: dict[str, Any], *, tokens: bool) -> str:
    """A line that works as it is."""
    content = operation.get("requestBody", {}).get("content", {})
    says_how = method == "get" or (method == "post" and content)  # curl knows by itself
    parts = [f"curl{'' if says_how else f' -X {method.upper()}'} {address}{path.format(name='demo', arm='c')}"]
    if tokens and path not in _OPEN:
        parts.append('-H "Authorization: Bearer $TOKEN"')
    example = next((kind["example"] for kind in content.values() if "example" in kind), None)
    if example is not None:
        parts.append(f"-d '{json.dumps(example)}'")
    elif content:
        parts.append(f"--data-binary @{_FILE}")
    elif (path, method) == ("/v1/journal", "get"):
        parts.append(f"-o {_FILE}")
    return " \\\n  ".join(parts)


def _summary(operation: dict[str, Any]) -> str:
    return str(operation.get("summary", ""))


def _anchor(path: str, method: str) -> str:
    return method + "".join(letter if letter.isalnum() else "-" for letter in path)


def _section(path: str, method: str, operation: dict[str, Any], curl: str) -> str:
    parts = [
        f'<section id="{_anchor(path, method)}"><h2>{escape(_summary(operation))}</h2>',
        f"<p><code>{method.upper()} {escape(path)}</code></p><p>{escape(operation.get('description', ''))}</p>",
    ]
    query = [parameter for parameter in operation.get("parameters", []) if parameter["in"] == "query"]
    if query:
        items = "".join(
            f"<li><code>{escape(parameter['name'])}</code>: {_type(parameter['schema'])}</li>" for parameter in query
        )
        parts.append(f"<p>Query:</p><ul>{items}</ul>")
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body ({escape(media)}): {_type(content['schema'])}</p>")
    parts.append(f"<pre>{escape(curl)}</pre><ul>")
    for status, answer in sorted(operation.get("responses", {}).items()):
        shape = next((content.get("schema", {}) for content in answer.get("content", {}).values()), None)
        known = f": {_type(shape)}" if shape and int(status) < 400 else ""
        parts.append(f"<li><code>{status}</code> {escape(answer.get('description', ''))}{known}</li>")
    return "".join(parts) + "</ul></section>"


def _shape(name: str, schema: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><th scope='row'><code>{escape(field)}</code></th><td>{_type(kind)}</td>"
        f"<td>{'required' if field in schema.get('required', ()) else _default(kind)}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    )
    about = escape(schema.get("description", ""))
    return f'<section id="shape-{escape(name)}"><h3>{escape(name)}</h3><p>{about}</p><table>{rows}</table></section>'


def _default(kind: dict[str, Any]) -> str:
    return f"default: <code>{escape(json.dumps(kind['default']))}</code>" if "default" in kind else ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#shape-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(kind) for kind in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and schema.get("properties"):
        fields = ", ".join(f"<code>{escape(name)}</code>: {_type(of)}" for name, of in schema["properties"].items())
        return f"object of {fields}"
    return escape(str(kind))
