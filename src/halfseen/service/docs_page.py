"""The page at /docs: the OpenAPI description as plain HTML, with a line of curl for each route and no script."""

from __future__ import annotations

import json
from html import escape
from typing import Any

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


def page(description: dict[str, Any]) -> str:
    schemas = description["components"]["schemas"]
    operations = [
        (path, method, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    operations.sort(key=lambda found: (found[2].get("tags") != ["decisions"], found[0]))
    links = "".join(
        f'<li><a href="#{_anchor(path, method)}">{escape(_summary(operation))}</a></li>'
        for path, method, operation in operations
    )
    sections = "".join(_section(*found, schemas) for found in operations)
    info = description["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(info["title"])}</title><link rel="stylesheet" href="/docs.css"></head><body>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>"
        '<p>For programs: <a href="/openapi.json">openapi.json</a>. A refusal is always '
        '<code>{"error": {"code", "message"}}</code>.</p>'
        f"<nav aria-label='Routes'><ul>{links}</ul></nav><main>{sections}</main>"
        f"<h2>Shapes</h2>{''.join(_shape(name, schemas[name]) for name in sorted(schemas))}</body></html>"
    )


def _summary(operation: dict[str, Any]) -> str:
    return str(operation.get("summary", ""))


def _anchor(path: str, method: str) -> str:
    return method + "".join(letter if letter.isalnum() else "-" for letter in path)


def _section(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
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
    line = [f"curl{' -X ' + method.upper() if method not in ('get', 'post') else ''} http://127.0.0.1:8400{path}"]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body ({escape(media)}): {_type(content['schema'])}</p>")
        if "example" in content:
            line.append(f"  -d '{json.dumps(content['example'])}'")
        else:
            line.append("  --data-binary @body")
    curl = escape(" \\\n".join(line))
    parts.append(f"<pre>{curl}</pre><ul>")
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
