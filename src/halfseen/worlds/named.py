"""The named worlds, one function for each (docs/mathematics.md, "The worlds")."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from halfseen.agents.catalogue import check_new_name
from halfseen.agents.costs import check_costs
from halfseen.errors import invalid, unknown
from halfseen.models.linear_gaussian import LinearGaussianModel
from halfseen.reports.tables import Table
from halfseen.validation import at_least, positive, probability
from halfseen.worlds.clicks_and_counts import FamilyWorld
from halfseen.worlds.gaps import GapsWorld
from halfseen.worlds.generated import generated
from halfseen.worlds.linear_gaussian import FixedWorld, RandomWorld, observation_noise
from halfseen.worlds.markets import power, returns, voltrade
from halfseen.worlds.markov_chain import ChainWorld, MarkovChain
from halfseen.worlds.rotations import DeepWorld, TwoScalesWorld
from halfseen.worlds.world import World


def paper(
    *, noise: float = 0.1, sensor_noise: ArrayLike = 0.0, latent: int = 20, observed: int = 10, arms: int = 15
) -> RandomWorld:
    """The experiment of the paper (section 4). Option `noise` is ε in Q = εI, and `sensor_noise` is s in Σ = sI."""
    process_var = positive("noise", noise)
    observation_var = observation_noise("sensor_noise", sensor_noise, observed)
    name = f"paper ε={process_var:g}"
    if observation_var != 0.0:
        name += f" Σ={observation_var:g}" if isinstance(observation_var, float) else " Σ=matrix"
    return RandomWorld(
        name=name,
        latent=latent,
        observed=observed,
        arms=arms,
        dynamics="stochastic",
        process_var=process_var,
        reward_std=1.0,
        observation_var=observation_var,
    )


def orbit(*, latent: int = 20, observed: int = 10, arms: int = 15) -> RandomWorld:
    """Slowly damped rotations and little noise. The motion of observed coordinates tells about the hidden ones."""
    return RandomWorld(
        name="orbit",
        latent=latent,
        observed=observed,
        arms=arms,
        dynamics="orthogonal",
        process_var=0.01,
        reward_std=0.1,
    )


def keyhole(*, latent: int = 8, observed: int = 3, arms: int = 6) -> RandomWorld:
    """Three of eight coordinates are observed."""
    return RandomWorld(
        name="keyhole",
        latent=latent,
        observed=observed,
        arms=arms,
        dynamics="orthogonal",
        process_var=0.1,
        reward_std=1.0,
    )


def foggy_keyhole(*, latent: int = 8, observed: int = 3, arms: int = 6) -> RandomWorld:
    """`keyhole` with noisy sensors, Σ = ½ I."""
    world = keyhole(latent=latent, observed=observed, arms=arms)
    return dataclasses.replace(world, name="foggy-keyhole", observation_var=0.5)


def fog(*, latent: int = 10, observed: int = 5, arms: int = 8) -> RandomWorld:
    """The dynamics of the paper with sensors that are much noisier than the process, Σ = I."""
    return RandomWorld(
        name="fog",
        latent=latent,
        observed=observed,
        arms=arms,
        dynamics="stochastic",
        process_var=0.01,
        reward_std=1.0,
        observation_var=1.0,
    )


def switch(*, at: int = 1500, latent: int = 20, observed: int = 10, arms: int = 15) -> RandomWorld:
    """`orbit` with a change of D after round `at`, about which agents are not informed."""
    last = at_least("at", at, 1)
    name = "switch" if last == 1500 else f"switch at={last}"
    return dataclasses.replace(orbit(latent=latent, observed=observed, arms=arms), name=name, changes_after=last)


def deep(*, latent: int = 24, observed: int = 2, arms: int = 6) -> DeepWorld:
    """Twelve damped rotations, of which only two coordinates are observed."""
    return DeepWorld(name="deep", latent=latent, observed=observed, arms=arms)


def two_scales(*, latent: int = 5, observed: int = 3, arms: int = 6) -> TwoScalesWorld:
    """Three coordinates with a short memory, and a slow hidden rotation that is observed only through them."""
    return TwoScalesWorld(name="two-scales", latent=latent, observed=observed, arms=arms)


def regimes(*, latent: int = 3, observed: int = 2, arms: int = 5) -> ChainWorld:
    """Three persistent hidden states with noisy observations. The rewards of the arms depend on the state."""
    states, features = at_least("latent", latent, 2), at_least("observed", observed, 1)
    transition = np.array([[0.95, 0.04, 0.01], [0.02, 0.95, 0.03], [0.03, 0.03, 0.94]])
    if states != 3:
        transition = np.where(np.eye(states) == 1.0, 0.95, 0.05 / (states - 1))
    # An angle φ identifies the state. Feature 2j is cos((j + 1)φ), and feature 2j + 1 is sin((j + 1)φ), times 1.5.
    angles = np.outer(2.0 * np.pi * np.arange(states) / states, 1 + np.arange(features) // 2)
    means = 1.5 * np.where(np.arange(features) % 2 == 0, np.cos(angles), np.sin(angles))
    chain = MarkovChain(transition=transition, means=means, noise_var=1.0)
    return ChainWorld(name="regimes", chain=chain, arms=at_least("arms", arms, 1), reward_std=1.0)


def blurred(*, noise: float = 1.0, common: float = 5.0, observed: int = 5, arms: int = 2) -> FixedWorld:
    """Independent contexts, completely observed with noise, and two arms with similar rewards."""
    d, count = at_least("observed", observed, 2), at_least("arms", arms, 1)
    var, shared = positive("noise", noise, zero_allowed=True), positive("common", common, zero_allowed=True)
    # The first d coordinates are N(1, I), independent in every round. The last is always 1 and serves as their mean.
    transition, process_cov, initial_cov = np.zeros((3, d + 1, d + 1))
    transition[:, d] = 1.0
    process_cov[:d, :d] = initial_cov[:d, :d] = np.eye(d)
    model = LinearGaussianModel(
        transition=transition,
        process_cov=process_cov,
        observation_cov=var * np.eye(d),
        initial_mean=np.ones(d + 1),
        initial_cov=initial_cov,
    )
    alternating = np.append(0.0, (-1.0) ** np.arange(d - 1))  # 0, 1, −1, 1, −1, ...
    own = [np.eye(d)[0], *(np.roll(alternating, arm) for arm in range(count - 1))]
    arm_params = np.zeros((count, d + 1))
    arm_params[:, :d] = shared + np.stack(own)
    name = "blurred" if (var, shared) == (1.0, 5.0) else f"blurred noise={var:g} common={shared:g}"
    return FixedWorld(name, model, arm_params, 1.0)


def clicks(*, rate: float = 0.1, latent: int = 8, observed: int = 3, arms: int = 6) -> FamilyWorld:
    """The contexts of `keyhole` with rewards of 0 or 1. Option `rate` is the share of clicks under random play."""
    mean, contexts = positive("rate", rate), keyhole(latent=latent, observed=observed, arms=arms)
    return FamilyWorld("clicks" if mean == 0.1 else f"clicks rate={mean:g}", contexts, "binary", mean, 1.5)


def counts(*, rate: float = 1.0, latent: int = 8, observed: int = 3, arms: int = 6) -> FamilyWorld:
    """The contexts of `keyhole` with Poisson counts as rewards. Option `rate` is the mean count under random play."""
    mean, contexts = positive("rate", rate), keyhole(latent=latent, observed=observed, arms=arms)
    return FamilyWorld("counts" if mean == 1.0 else f"counts rate={mean:g}", contexts, "count", mean, 0.75)


def gaps(
    *,
    world: str = "orbit",
    share: float = 0.4,
    told: bool = True,
    latent: int | None = None,
    observed: int | None = None,
    arms: int | None = None,
) -> GapsWorld:
    """A named world of which a share of the rounds is left out. Agents are told how many rounds have passed."""
    if world == "gaps" or not isinstance(told, bool):
        raise invalid("world 'gaps'", "the name of another world, and told=True or told=False", f"{world}, {told}")
    sizes = {"latent": latent, "observed": observed, "arms": arms}
    base = named(world, **{name: size for name, size in sizes.items() if size is not None})
    return GapsWorld(base, probability("share", share), told=told, base_name=named(world).name)


NAMED: dict[str, Callable[..., World]] = {
    "paper": paper,
    "orbit": orbit,
    "keyhole": keyhole,
    "foggy-keyhole": foggy_keyhole,
    "fog": fog,
    "switch": switch,
    "deep": deep,
    "two-scales": two_scales,
    "regimes": regimes,
    "blurred": blurred,
    "clicks": clicks,
    "counts": counts,
    "gaps": gaps,
}
RECORDED = {"voltrade": voltrade, "power": power, "returns": returns}  # they need the packages of the extra `data`
_RECORDED_SIZES = {"voltrade": (8, 5, 5), "power": (9, 5, 5), "returns": (8, 5, 5)}  # d, k and K
_REGISTERED: dict[str, Callable[..., World]] = {}
_SIZES = {"latent": "d", "observed": "k", "arms": "K"}  # the options for sizes, and their letters in names


def named(name: str, *, costs: ArrayLike | None = None, **options: Any) -> World:
    """Return a named world.

    Parameters
    ----------
    name : str
        One of `hs.worlds.NAMED` (simulated), `hs.worlds.RECORDED` (recorded data, which need the extra `data`), or a
        name given to `hs.worlds.register`.
    costs : array_like of shape (K,), optional
        The cost of each arm in units of reward. Agents are given the costs with each decision, and regret is computed
        from reward minus cost.
    **options
        Options of the world: `noise` and `sensor_noise` for "paper", `at` for "switch", `noise` and `common` for
        "blurred", `rate` for "clicks" and "counts", `world`, `share` and `told` for "gaps". All simulated worlds also
        have the sizes `latent`, `observed` and `arms` as options, except that "blurred" has no option `latent`,
        because its context is observed completely.

    Returns
    -------
    World
        The world, which can be passed to `hs.run`.

    Raises
    ------
    HalfseenError
        If there is no world or option of that name, or if a data package is not installed.

    Examples
    --------
    >>> import halfseen as hs
    >>> hs.worlds.named("paper", noise=0.01).name
    'paper ε=0.01'
    >>> hs.worlds.named("keyhole", latent=6, arms=4).name
    'keyhole d=6 K=4'
    """
    makers = _makers()
    if name not in makers:
        raise unknown("world", name, makers)
    make = makers[name]
    allowed = inspect.signature(make).parameters
    for option in options:
        if option not in allowed:
            raise unknown("option", option, allowed, f"World '{name}'")
    world = make(**options)
    shown = _SIZES if name not in _REGISTERED else {option: option for option in options}
    changed = [
        f" {letter}={options[option]}"
        for option, letter in shown.items()
        if option in options and options[option] != allowed[option].default
    ]
    if costs is not None:
        given = tuple(check_costs(costs, 1, range(world.arms))[0].tolist())
        changed.append(f" costs={','.join(format(cost, 'g') for cost in given)}")
    if changed:
        world = copy.copy(world)
        object.__setattr__(world, "name", world.name + "".join(changed))
    if costs is not None:
        object.__setattr__(world, "costs", given)
    return world


def _makers() -> dict[str, Callable[..., World]]:
    """Return the functions that make the named worlds, by name."""
    return {**NAMED, **RECORDED, **_REGISTERED}


def register(name: str, function: Callable[..., Any], *, reward_std: float = 1.0) -> None:
    """Give a name to your own world, so that `hs.run` and `halfseen run --import` accept the name.

    Parameters
    ----------
    name : str
        The name: letters, digits, ".", "_" and "-". It must not be the name of a world of the package.
    function : callable
        A generator function, as for `generated`, or a function that returns a world. Its keyword arguments are the
        options of the world, and all of them need defaults.
    reward_std : float, default 1.0
        The standard deviation of the noise of rewards, for a generator function.

    Raises
    ------
    HalfseenError
        If the name is not valid or belongs to a world of the package, or if the function does not make a world.

    Examples
    --------
    >>> import numpy as np
    >>> import halfseen as hs
    >>> def tide(seed, period=50):
    ...     rng, t = np.random.default_rng(seed), 0
    ...     while True:
    ...         t, level = t + 1, np.sin(2 * np.pi * t / period)
    ...         yield [level + 0.5 * rng.normal()], [level, -level]
    >>> hs.worlds.register("tide", tide, reward_std=0.1)
    >>> hs.worlds.named("tide", period=30).name
    'tide period=30'
    >>> result = hs.run(["ts-pco", "random"], world="tide:period=30", rounds=100, seeds=2)
    """
    check_new_name(name, {**NAMED, **RECORDED}, "world")
    if not callable(function):
        raise invalid("function", "a generator function, or a function that returns a world", repr(function))
    is_generator = inspect.isgeneratorfunction(function)

    def make(**options: Any) -> World:
        if is_generator:
            return generated(function, reward_std=reward_std, name=name, **options)
        try:
            world = function(**options)
        except Exception as error:
            error.add_note(f"world '{name}', when it was made")
            raise
        if not isinstance(world, World):
            raise invalid(f"world '{name}'", "a generator function, or a function that returns a world", repr(world))
        named_world = copy.copy(world)
        object.__setattr__(named_world, "name", name)
        object.__setattr__(named_world, "is_own", True)
        return named_world

    parameters = list(inspect.signature(function).parameters.values())
    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters[1 if is_generator else 0 :]]
    for option in options:
        if option.default is inspect.Parameter.empty:
            raise invalid(f"world '{name}'", "options with defaults", f"'{option.name}' without one")
    vars(make)["__signature__"] = inspect.Signature(options)
    make.__doc__ = next(iter((inspect.getdoc(function) or "").splitlines()), "")
    make()  # raises if the function does not make a world
    _REGISTERED[name] = make


def world_table() -> Table:
    """Return a table with one row per world: its name, sizes, options and description."""
    rows = []
    for name, make in _makers().items():
        d, k, K = _RECORDED_SIZES.get(name) or ((world := make()).latent, world.observed, world.arms)
        options = [one for one in inspect.signature(make).parameters.values() if one.name not in _SIZES]
        rows.append(
            {
                "world": name,
                "d": str(d),
                "k": str(k),
                "K": str(K),
                "options": ", ".join(f"{option.name}={_short(option.default)}" for option in options),
                "what it is": (make.__doc__ or "").strip(),
            }
        )
    return Table(rows)


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
