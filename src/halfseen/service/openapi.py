"""The OpenAPI description. FastAPI describes its own routes; all other routes and all schemas are added here."""

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
    ForecastReply,
    GuardrailSettings,
    ObservationReply,
    ObservationRequest,
    PreviewReply,
    RewardReply,
    RewardRequest,
    StreamList,
    StreamSpec,
    StreamView,
)

_REF = "#/components/schemas/{name}"
_TYPES = (
    *(DecisionRequest, RewardRequest, DecisionReply, RewardReply),
    *(ObservationRequest, ObservationReply, PreviewReply, ForecastReply),
    *(StreamSpec, StreamView, StreamList, ArmRequest, GuardrailSettings, ErrorReply),
)
_ERRORS = {
    "400": "The body is not JSON.",
    "401": "There is no token, or it is unknown, expired or revoked.",
    "403": "The token does not allow this request.",
    "404": "There is no such stream, decision or arm.",
    "409": "The request conflicts with what is recorded.",
    "413": "The request exceeds a limit of the service.",
    "422": "An argument is wrong. The message says what was expected.",
    "429": "The token was used for too many requests per second.",
    "503": "The service is busy or its database is unavailable. Try again later.",
}
_SUCCESS = "Success"


def ref(kind: type) -> dict[str, Any]:
    return {"$ref": _REF.format(name=kind.__name__)}


def request_body(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    """Describe a JSON body that FastAPI does not parse, for the argument `openapi_extra` of a route."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


def responses(kind: type, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Describe the replies of a route, including errors, for the argument `responses` of a route."""
    return {status: _content(ref(kind), _SUCCESS), **error_responses()}


def error_responses() -> dict[int | str, dict[str, Any]]:
    return {int(status): _content(ref(ErrorReply), reason) for status, reason in _ERRORS.items()}


def _content(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _operation(
    tag: str, summary: str, description: str, reply: dict[str, Any], *, has_name: bool = True, **others: Any
) -> dict[str, Any]:
    """Describe a route that FastAPI does not know. `has_name` says whether its path contains the name of a stream."""
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string"},
        "description": "Name of the stream.",
    }
    replies = {200: _content(reply, _SUCCESS), **error_responses()}
    return {
        "tags": [tag],
        "summary": summary,
        "description": description,
        "operationId": summary.lower().replace(" ", "_"),
        "parameters": [name] if has_name else [],
        "responses": {str(status): content for status, content in replies.items()},
        "security": [{"token": []}],
        **others,
    }


def _post(
    summary: str, description: str, schema: dict[str, Any], reply: dict[str, Any], example: Any
) -> dict[str, Any]:
    """Describe a route of routes/decisions.py."""
    return {"post": _operation("decisions", summary, description, reply, **request_body(schema, example))}


def _get(summary: str, description: str, *, has_name: bool = True, **query: str) -> dict[str, Any]:
    """Describe a route of the dashboard."""
    operation = _operation("dashboard", summary, description, {"type": "object"}, has_name=has_name)
    operation["parameters"] += [{"name": key, "in": "query", "schema": {"type": kind}} for key, kind in query.items()]
    return {"get": operation}


def _batch(field: str, row: type) -> dict[str, Any]:
    rows = {"type": "array", "items": ref(row)}
    return {"type": "object", "properties": {field: rows}, "required": [field], "additionalProperties": False}


def _results(row: type) -> dict[str, Any]:
    rows = {"type": "array", "items": {"anyOf": [ref(row), ref(ErrorReply)]}}
    return {"type": "object", "properties": {"results": rows}, "required": ["results"]}


# All examples use the same stream, so that the curl commands at /docs work one after the other.
EXAMPLE_STREAM = {"name": "demo", "observed": 2, "arms": ["a", "b"]}
EXAMPLE_ARM = {"arm": "c"}
EXAMPLE_GUARDRAILS = {"floor": 0.05, "holdback": 0.1, "control": ["a", 0.05]}
_DECISION_EXAMPLE = {"observation": [0.3, None]}
_OBSERVATION_EXAMPLE = {"observation": [0.1, -0.4], "elapsed": 3}
_REWARD_EXAMPLE = {"decision": "ID", "value": 1.5}
_DECISION_PATHS = {
    "/v1/streams/{name}/decisions": _post(
        "Decide",
        "Choose an arm for an observation. The observation is a list of numbers, or an object with one number per "
        "feature; null or an omitted feature means that the value is missing. The reply is sent when the decision is "
        "on disk. A request with a key that was used before gets the earlier decision. "
        "The token needs the scope decide.",
        ref(DecisionRequest),
        ref(DecisionReply),
        _DECISION_EXAMPLE,
    ),
    "/v1/streams/{name}/rewards": _post(
        "Reward",
        "Send the reward of a decision. Rewards may be sent at any time and in any order. Sending the same value again "
        "changes nothing, but a different value is a conflict. A reward that arrives after the reward wait is late. A "
        "late reward is recorded. With late_rewards 'fold' the agent also learns from it, and it replaces the default "
        "reward. "
        "The token needs the scope decide.",
        ref(RewardRequest),
        ref(RewardReply),
        _REWARD_EXAMPLE,
    ),
    "/v1/streams/{name}/observations": _post(
        "Observe",
        "Send an observation without asking for a decision, so that later decisions know more about the context. "
        "`elapsed` is the number of steps since the last observation or decision, 1 by default. If the stream has a "
        "step, `time` may be given instead. Repeating the request records another observation. "
        "The token needs the scope decide.",
        ref(ObservationRequest),
        ref(ObservationReply),
        _OBSERVATION_EXAMPLE,
    ),
    "/v1/streams/{name}/preview": _post(
        "Preview",
        "Return the decision that the same request to decisions would get now. No decision is made and nothing "
        "changes. The token needs the scope decide.",
        ref(DecisionRequest),
        ref(PreviewReply),
        _DECISION_EXAMPLE,
    ),
    "/v1/streams/{name}/decisions/batch": _post(
        "Decide many",
        "Make several decisions, in order. The reply has a result or an error for each of them, and an error does not "
        "affect the other decisions. The token needs the scope decide.",
        _batch("decisions", DecisionRequest),
        _results(DecisionReply),
        {"decisions": [_DECISION_EXAMPLE, {"observation": [None, 1.2], "available": ["b"], "key": "order-1234"}]},
    ),
    "/v1/streams/{name}/rewards/batch": _post(
        "Reward many",
        "Send several rewards, in order. The reply has a result or an error for each of them, and an error does not "
        "affect the other rewards. The token needs the scope decide.",
        _batch("rewards", RewardRequest),
        _results(RewardReply),
        {"rewards": [_REWARD_EXAMPLE]},
    ),
}


_DASHBOARD_PATHS = {
    "/v1/overview": _get(
        "Overview",
        "List the streams with their numbers of decisions and rewards, sorted by name. The token needs the scope read.",
        has_name=False,
        after="string",
        limit="integer",
    ),
    "/v1/streams/{name}/series": _get(
        "Series",
        "Return the data of the dashboard's charts for the most recent decisions: rewards and the estimated mean "
        "reward of the uniform policy, the share of each arm, the estimated context, delays of rewards, open decisions "
        "and latencies. The token needs the scope read.",
        points="integer",
        coordinate="integer",
    ),
    "/v1/streams/{name}/health": _get(
        "Health", "Return the agent's health report on its model and arms. The token needs the scope read."
    ),
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description of all routes."""
    description = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _, added = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    components = description.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI adds these, but no reply has this form
        schemas.pop(name, None)
    schemas.update(added)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    paths = description.setdefault("paths", {})
    paths.update(_DECISION_PATHS)
    paths.update(_DASHBOARD_PATHS)
    return description
