"""The OpenAPI description is valid and covers every route, and no request generated from it breaks the service."""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from service.served import Served, metrics


def test_the_description_covers_every_route(http: httpx.Client) -> None:
    found = http.get("/openapi.json").json()
    assert found["openapi"].startswith("3.")
    paths = found["paths"]
    for path in ("/v1/streams", "/v1/streams/{name}/decisions", "/v1/streams/{name}/rewards/batch", "/v1/journal"):
        assert path in paths
    named = {name for methods in paths.values() for operation in methods.values() for name in _references(operation)}
    assert named <= set(found["components"]["schemas"])
    ids = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(set(ids)) == len(ids)


def _references(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if "$ref" in value else set()
        return own.union(*(_references(part) for part in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(part) for part in value))
    return set()


@pytest.mark.parametrize("examples", [10, pytest.param(25, marks=pytest.mark.slow)])  # per operation
def test_no_generated_request_breaks_the_service(service: Served, http: httpx.Client, examples: int) -> None:
    """Schemathesis generates valid and invalid requests from the description. No reply may have a 5xx status."""
    http.post("/v1/streams", json={"name": "0", "observed": 2, "arms": 2, "agent": "ts-pco"})
    schema = schemathesis.openapi.from_url(service.url + "/openapi.json")
    before, tried = _answered(http), 0
    # The body of an import is not JSON. test_routes.py tests invalid imports.
    for found in schema.exclude(path="/v1/journal", method="POST").get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def attempt(case: schemathesis.Case) -> None:
            nonlocal tried
            tried += 1
            answer = case.call()
            assert answer.status_code < 500, (case, answer.text)

        attempt()
    assert tried > 100
    assert http.get("/healthz").status_code == 200
    assert tried < _answered(http) - before < tried + 10


def _answered(http: httpx.Client) -> float:
    return sum(value for name, value in metrics(http).items() if name.startswith("halfseen_requests_total"))
