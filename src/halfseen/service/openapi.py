"""The OpenAPI description: FastAPI's own for its routes, and the schemas of what msgspec reads and writes."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from halfseen.service.specs import Ask, Decided, Rewarded, StreamSpec, StreamView, Told
from halfseen.service.wire import ArmRequest, ErrorReply, Streams

_REF = "#/components/schemas/{name}"
_TYPES = (Ask, Told, Decided, Rewarded, StreamSpec, StreamView, Streams, ArmRequest, ErrorReply)
_REFUSALS = {
    "400": "The body is not JSON",
    "401": "No token, or one that is unknown, expired or revoked",
    "403": "A token for something else",
    "404": "No such stream, decision or arm",
    "409": "It conflicts with what is recorded",
    "413": "Larger than the service takes",
    "422": "Not what is wanted; the message says what is",
    "429": "More requests than the token's rate",
    "503": "Busy, or the database is away: ask again",
}


def ref(kind: type) -> dict[str, Any]:
    return {"$ref": _REF.format(name=kind.__name__)}


def body_of(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    """For `openapi_extra`: what a route reads that FastAPI does not."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


def answers(kind: type, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For `responses`: what a route answers, and how it refuses."""
    return {status: _content(ref(kind), "As asked"), **refusals()}


def refusals() -> dict[int | str, dict[str, Any]]:
    return {int(status): _content(ref(ErrorReply), why) for status, why in _REFUSALS.items()}


def _content(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _hot(summary: str, description: str, schema: dict[str, Any], reply: dict[str, Any], example: Any) -> dict[str, Any]:
    responses = {200: _content(reply, "As asked"), **refusals()}
    content = {"schema": schema, "example": example}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": "The stream"}
    return {
        "post": {
            "tags": ["decisions"],
            "summary": summary,
            "description": description,
            "operationId": summary.lower().replace(" ", "_"),
            "parameters": [name],
            "requestBody": {"required": True, "content": {"application/json": content}},
            "responses": {str(status): answer for status, answer in responses.items()},
            "security": [{"token": []}],
        }
    }


def _batch(field: str, row: type) -> dict[str, Any]:
    rows = {"type": "array", "items": ref(row)}
    return {"type": "object", "properties": {field: rows}, "required": [field], "additionalProperties": False}


def _results(row: type) -> dict[str, Any]:
    rows = {"type": "array", "items": {"anyOf": [ref(row), ref(ErrorReply)]}}
    return {"type": "object", "properties": {"results": rows}, "required": ["results"]}


# All examples are about one stream, so that the lines of curl at /docs work from the first to the last.
EXAMPLE_STREAM = {"name": "demo", "observed": 2, "arms": ["a", "b"]}
EXAMPLE_ARM = {"arm": "c"}
_ASKED = {"observation": [0.3, None]}
_PAID = {"decision": "ID", "value": 1.5}
_HOT_PATHS = {
    "/v1/streams/{name}/decisions": _hot(
        "Decide",
        "An arm for what is seen now. An observation is a list, or an object by feature; null, or a feature left out, "
        "is not seen. Answered once it is on disk. The same key again gives the same decision again. "
        "Needs the scope decide.",
        ref(Ask),
        ref(Decided),
        _ASKED,
    ),
    "/v1/streams/{name}/rewards": _hot(
        "Reward",
        "What a decision brought: now, late, out of order. The same value again is fine, another is a conflict. "
        "After the reward wait it is late: recorded, and with late_rewards 'fold' also learnt, in the place of the "
        "default if there was one. Needs the scope decide.",
        ref(Told),
        ref(Rewarded),
        _PAID,
    ),
    "/v1/streams/{name}/decisions/batch": _hot(
        "Decide many",
        "Decisions in order, each with its own result; a row that is refused leaves the others as they are. "
        "Needs the scope decide.",
        _batch("decisions", Ask),
        _results(Decided),
        {"decisions": [_ASKED, {"observation": [None, 1.2], "available": ["b"], "key": "order-1234"}]},
    ),
    "/v1/streams/{name}/rewards/batch": _hot(
        "Reward many",
        "Rewards in order, each with its own result; a row that is refused leaves the others as they are. "
        "Needs the scope decide.",
        _batch("rewards", Told),
        _results(Rewarded),
        {"rewards": [_PAID]},
    ),
}


def _look(summary: str, description: str, *, of_stream: bool, **query: str) -> dict[str, Any]:
    """A route of the dashboard's, whose answers are for it to draw."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": "The stream"}
    rest = [{"name": key, "in": "query", "schema": {"type": kind}} for key, kind in query.items()]
    responses = {200: _content({"type": "object"}, "As asked"), **refusals()}
    return {
        "get": {
            "tags": ["watching"],
            "summary": summary,
            "description": description,
            "operationId": summary.lower().replace(" ", "_"),
            "parameters": [*([name] if of_stream else []), *rest],
            "responses": {str(status): answer for status, answer in responses.items()},
            "security": [{"token": []}],
        }
    }


_LOOKS = {
    "/v1/overview": _look(
        "Overview", "Streams at a glance. Needs the scope read.", of_stream=False, after="string", limit="integer"
    ),
    "/v1/streams/{name}/series": _look(
        "Series",
        "What the page draws: rewards against the uniform policy's estimate, arms, the context, latency, open "
        "decisions; of the last ones. Needs the scope read.",
        of_stream=True,
        points="integer",
        coordinate="integer",
    ),
    "/v1/streams/{name}/health": _look(
        "Health", "What the agent says of its model and arms. Needs the scope read.", of_stream=True
    ),
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole description. FastAPI's route for errors of its own is left out: it never answers in that shape."""
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    components = found.setdefault("components", {})
    own = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        own.pop(name, None)
    own.update(schemas)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    paths = found.setdefault("paths", {})
    paths.update(_HOT_PATHS)
    paths.update(_LOOKS)
    return found
