"""Refuse streams that exceed a limit of the service, before their agents are made."""

from __future__ import annotations

from halfseen.agents.stream_cost import stream_cost
from halfseen.errors import HalfseenError
from halfseen.service.engine.loaded_stream import agent_options, max_pending
from halfseen.service.errors import refusal
from halfseen.service.schemas import Limits, StreamSpec

_MAX_NAME_LENGTH = 100  # of an arm or a feature


def check_stream(spec: StreamSpec, limits: Limits, arms: int | None = None) -> None:
    """Raise 413 or 422 if a stream with this specification and `arms` arms would exceed a limit.

    By default, `arms` is the number of arms in the specification.
    """
    observed = spec.observed if isinstance(spec.observed, int) else len(spec.observed)
    count = arms if arms is not None else spec.arms if isinstance(spec.arms, int) else len(spec.arms)
    for argument, size, most in (("observed", observed, limits.observed), ("arms", count, limits.arms)):
        if size > most:
            raise refusal("too_large", f"{argument}: expected at most {most}, got {size}")
    for argument, names in (("observed", spec.observed), ("arms", spec.arms)):
        for name in () if isinstance(names, int) else names:
            check_name(argument, name)
    try:
        options = agent_options(spec)
        cost = stream_cost(spec.agent, observed, count, options, max_pending(options))
    except HalfseenError as error:
        raise refusal("invalid", str(error)) from None
    estimates = {
        "stream_bytes": cost.agent_bytes + cost.pending_bytes,
        "decision_operations": cost.decision_operations,
        "identification_operations": cost.identification_operations,
    }
    for name, estimate in estimates.items():
        most = getattr(limits, name)
        if estimate > most:
            got = f"an estimate of {estimate:.3g} for '{spec.agent}' with {observed} features and {count} arms"
            if name == "stream_bytes":
                got += f", of which {cost.pending_bytes:.3g} for max_pending={max_pending(options)}"
            raise refusal("invalid", f"{name}: expected at most {most:.3g}, got {got}")


def check_name(argument: str, name: str) -> None:
    """Check a name that will appear in URLs and on pages. PostgreSQL does not accept NUL characters."""
    if not name.isprintable() or not 0 < len(name) <= _MAX_NAME_LENGTH:
        expected = f"1 to {_MAX_NAME_LENGTH} printable characters"
        raise refusal("invalid", f"{argument}: expected {expected}, got {name[:60]!a}")
