"""Plain agents: Python objects with the methods `decide` and `learn`, one object per stream."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from halfseen.errors import InvalidInput, invalid, unknown
from halfseen.kernels.random import Floats
from halfseen.validation import Bound

GIVEN = ("observed", "arms", "seed", "rounds")  # the keyword arguments that a factory may take
METHODS = ("decide", "learn")
_ROUNDING = 1e-6  # tolerance for the sum of propensities


@dataclass(frozen=True)
class PlainEntry:
    """A user-defined agent: a class with the methods `decide` and `learn`, or a function that returns such objects.

    `factory` is called once per stream. It receives the keyword arguments `observed`, `arms`, `seed` and `rounds` if it
    has parameters of these names. All its other parameters are options.
    """

    name: str
    factory: Callable[..., Any]
    summary: str = ""
    source: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)

    reveals_context: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise invalid("agent", "a class or function that makes agents", repr(self.factory))
        if inspect.isclass(self.factory):
            check_methods(self.name, self.factory)
        for parameter in self._parameters.values():
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.default is inspect.Parameter.empty:
                raise invalid(f"'{self.name}'", "parameters that can be given by name", f"'{parameter.name}'")

    @functools.cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        try:
            return dict(inspect.signature(self.factory).parameters)
        except ValueError:
            raise invalid(f"'{self.name}'", "a class or function with a known signature", "none") from None

    @property
    def components(self) -> tuple[str, str, str]:
        """Three dashes in place of the names of the components, because a plain agent has no components."""
        return ("–", "–", "–")

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The parameters of the factory that the caller sets, by name."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {name: one for name, one in self._parameters.items() if one.kind in kinds and name not in GIVEN}

    @property
    def bounds(self) -> dict[str, Bound]:
        """The bounds of the options: none, because the class checks its own options."""
        return {}

    @property
    def required(self) -> tuple[str, ...]:
        """The options that have no default and must be given."""
        return tuple(
            name
            for name, option in self.options.items()
            if option.default is inspect.Parameter.empty and name not in self.defaults
        )

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse the name of an option that the factory does not have."""
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in self._parameters.values()):
            return
        for name in options:
            if name not in self.options:
                raise unknown("option", name, self.options, f"'{self.name}'")

    def check_bounds(self, options: Mapping[str, Any]) -> None:
        """Do nothing, because the class checks its own options."""

    def check_required(self, options: Mapping[str, Any]) -> None:
        """Raise an error if a required option is missing."""
        for name in self.required:
            if name not in options:
                given = f"The arguments that halfseen passes are {', '.join(GIVEN[:-1])} and {GIVEN[-1]}."
                raise InvalidInput(f"'{self.name}' requires the option '{name}'. {given}")

    def make(self, *, observed: int, arms: int, seed: int, rounds: int | None, options: Mapping[str, Any]) -> Any:
        """Make the agent of one stream."""
        self.check_options(options)
        self.check_required(options)
        facts = {"observed": observed, "arms": arms, "seed": seed, "rounds": rounds}
        taken = {name: value for name, value in facts.items() if name in self._parameters}
        agent = self.factory(**taken, **(dict(self.defaults) | dict(options)))
        check_methods(self.name, agent)
        return agent


def check_methods(name: str, agent: Any) -> None:
    """Raise an error unless a class or an object has the methods of an agent."""
    for method in METHODS:
        if not callable(getattr(agent, method, None)):
            kind = agent.__name__ if inspect.isclass(agent) else type(agent).__name__
            raise invalid(
                f"'{name}'", "the methods decide(observation) and learn(round, reward)", f"{kind} without {method}"
            )


def factory_name(factory: Any) -> str:
    """Return the name of a class or a function."""
    if isinstance(factory, functools.partial):
        return factory_name(factory.func)
    name = getattr(factory, "__name__", type(factory).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def decided_arm(where: str, decision: Any, arms: int) -> tuple[int, Floats | None]:
    """Return the number of the arm that `decide` returned, and the propensities of all arms (None if there are none).

    A decision is a number, or an object with the attribute `arm` and, optionally, `propensities`.
    """
    given = getattr(decision, "arm", decision)
    try:
        arm = operator.index(given)
    except TypeError:
        arm = None
    if arm is None or isinstance(given, bool):
        raise invalid(where, f"an integer from 0 to {arms - 1}", repr(given))
    if not 0 <= arm < arms:
        raise invalid(where, f"an arm from 0 to {arms - 1}", repr(given))
    offered = getattr(decision, "propensities", None)
    if offered is None:
        return arm, None
    try:
        propensities = np.asarray(offered, dtype=np.float64)
    except (TypeError, ValueError):
        raise invalid(where, f"{arms} propensities", repr(offered)) from None
    if propensities.shape != (arms,):
        raise invalid(where, f"{arms} propensities, one per arm", f"shape {propensities.shape}")
    if not ((propensities >= 0).all() and abs(propensities.sum() - 1.0) <= _ROUNDING and propensities[arm] > 0):
        raise invalid(where, f"propensities that sum to 1, above 0 for arm {arm}", repr(propensities.tolist()))
    return arm, propensities
