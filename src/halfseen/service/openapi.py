"""The OpenAPI description: that of FastAPI for its routes, and the rest with the schemas of msgspec."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from halfseen.service.schemas import (
    ArmRequest,
    DecisionReply,
    DecisionRequest,
    ErrorReply,
    RewardReply,
    RewardRequest,
    StreamList,
    StreamSpec,
    StreamView,
)

_REF = "#/components/schemas/{name}"
_TYPES = (
    *(DecisionRequest, RewardRequest, DecisionReply, RewardReply),
    *(StreamSpec, StreamView, StreamList, ArmRequest, ErrorReply),
)
_ERRORS = {
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
    return {int(status): _content(ref(ErrorReply), why) for status, why in _ERRORS.items()}


def _content(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _operation(
    tag: str, summary: str, description: str, reply: dict[str, Any], *, of_stream: bool = True, **rest: Any
) -> dict[str, Any]:
    """A route that FastAPI does not know."""
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": "The stream"}
    responses = {200: _content(reply, "As asked"), **refusals()}
    return {
        "tags": [tag],
        "summary": summary,
        "description": description,
        "operationId": summary.lower().replace(" ", "_"),
        "parameters": [name] if of_stream else [],
        "responses": {str(status): answer for status, answer in responses.items()},
        "security": [{"token": []}],
        **rest,
    }


def _post(
    summary: str, description: str, schema: dict[str, Any], reply: dict[str, Any], example: Any
) -> dict[str, Any]:
    """A route of routes/decisions.py."""
    return {"post": _operation("decisions", summary, description, reply, **body_of(schema, example))}


def _get(summary: str, description: str, *, of_stream: bool = True, **query: str) -> dict[str, Any]:
    """A route of the dashboard, which reads the replies."""
    operation = _operation("watching", summary, description, {"type": "object"}, of_stream=of_stream)
    operation["parameters"] += [{"name": key, "in": "query", "schema": {"type": kind}} for key, kind in query.items()]
    return {"get": operation}


def _batch(field: str, row: type) -> dict[str, Any]:
    rows = {"type": "array", "items": ref(row)}
    return {"type": "object", "properties": {field: rows}, "required": [field], "additionalProperties": False}


def _results(row: type) -> dict[str, Any]:
    rows = {"type": "array", "items": {"anyOf": [ref(row), ref(ErrorReply)]}}
    return {"type": "object", "properties": {"results": rows}, "required": ["results"]}


# All examples are about one stream, so that the lines of curl at /docs work from the first to the last.
EXAMPLE_STREAM = {"name": "demo", "observed": 2, "arms": ["a", "b"]}
EXAMPLE_ARM = {"arm": "c"}
_DECISION_EXAMPLE = {"observation": [0.3, None]}
_REWARD_EXAMPLE = {"decision": "ID", "value": 1.5}
_DECISION_PATHS = {
    "/v1/streams/{name}/decisions": _post(
        "Decide",
        "An arm for what is seen now. An observation is a list, or an object by feature; null, or a feature left out, "
        "is not seen. Answered once it is on disk. The same key again gives the same decision again. "
        "Needs the scope decide.",
        ref(DecisionRequest),
        ref(DecisionReply),
        _DECISION_EXAMPLE,
    ),
    "/v1/streams/{name}/rewards": _post(
        "Reward",
        "What a decision brought: now, late, out of order. The same value again is fine, another is a conflict. "
        "After the reward wait it is late: recorded, and with late_rewards 'fold' also learnt, in the place of the "
        "default if there was one. Needs the scope decide.",
        ref(RewardRequest),
        ref(RewardReply),
        _REWARD_EXAMPLE,
    ),
    "/v1/streams/{name}/decisions/batch": _post(
        "Decide many",
        "Decisions in order, each with its own result; a row that is refused leaves the others as they are. "
        "Needs the scope decide.",
        _batch("decisions", DecisionRequest),
        _results(DecisionReply),
        {"decisions": [_DECISION_EXAMPLE, {"observation": [None, 1.2], "available": ["b"], "key": "order-1234"}]},
    ),
    "/v1/streams/{name}/rewards/batch": _post(
        "Reward many",
        "Rewards in order, each with its own result; a row that is refused leaves the others as they are. "
        "Needs the scope decide.",
        _batch("rewards", RewardRequest),
        _results(RewardReply),
        {"rewards": [_REWARD_EXAMPLE]},
    ),
}


_DASHBOARD_PATHS = {
    "/v1/overview": _get(
        "Overview", "Streams at a glance. Needs the scope read.", of_stream=False, after="string", limit="integer"
    ),
    "/v1/streams/{name}/series": _get(
        "Series",
        "What the page draws: rewards against the uniform policy's estimate, arms, the context, latency, open "
        "decisions; of the last ones. Needs the scope read.",
        points="integer",
        coordinate="integer",
    ),
    "/v1/streams/{name}/health": _get("Health", "What the agent says of its model and arms. Needs the scope read."),
}


def describe(app: FastAPI) -> dict[str, Any]:
    """The whole description. FastAPI's schemas of validation errors are left out, since replies never have them."""
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    components = found.setdefault("components", {})
    own = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        own.pop(name, None)
    own.update(schemas)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    paths = found.setdefault("paths", {})
    paths.update(_DECISION_PATHS)
    paths.update(_DASHBOARD_PATHS)
    return found
