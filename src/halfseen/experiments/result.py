"""The result of an experiment, with its summary, tables, figures and files."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halfseen.diagnostics.health import printed
from halfseen.errors import invalid, missing_extra, unknown
from halfseen.experiments.cache import versions
from halfseen.experiments.grid_summary import grid_options, grid_rows, grid_table
from halfseen.experiments.plan import Experiment
from halfseen.experiments.play import Trajectories, mean_without_first_chunk, microseconds_per_round
from halfseen.experiments.rewards import reward_summary
from halfseen.experiments.theory import theorem_quantities
from halfseen.kernels.random import Floats
from halfseen.reports.files import make_folder, save_figure, write_atomically, write_json
from halfseen.reports.frames import data_frame
from halfseen.reports.tables import GROWTH_NOTE, Table, count, html_block, regret_table, rewards_table
from halfseen.statistics.confidence_intervals import Estimate, standard_error
from halfseen.statistics.growth import growth_exponent, log_grid
from halfseen.validation import Words, as_list
from halfseen.worlds.recorded import RecordedWorld
from halfseen.worlds.world import World, all_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Result:
    """The result of `hs.run`: the trajectories of every agent in every world.

    Attributes
    ----------
    plan : Experiment
        The agents, worlds, seeds and number of rounds.
    tracks : dict
        Trajectories by (world name, agent label). Each has the arrays `regret`, `reward`, `arm` and `error` of shape
        (seeds, rounds).
    wall_seconds : float
        Duration of the run.
    jobs : int
        Number of processes that were used.

    Examples
    --------
    >>> import halfseen as hs
    >>> result = hs.run("random", world="orbit", rounds=50, seeds=3)
    >>> result.tracks["orbit", "random"].reward.shape
    (3, 50)
    >>> list(result.table().rows[0])[:2]
    ['world', 'agent']
    """

    plan: Experiment
    tracks: dict[tuple[str, str], Trajectories]
    wall_seconds: float
    jobs: int

    def __repr__(self) -> str:
        lines = [self._size, str(self.table()), *([] if self.recorded else [printed("", GROWTH_NOTE, 100)])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_block(self._size, self.table(), "" if self.recorded else GROWTH_NOTE)

    @property
    def _size(self) -> str:
        return f"{count(self.plan.seeds, 'seed')}, {count(self.plan.rounds, 'round')}"

    @property
    def worlds(self) -> tuple[str, ...]:
        """The names of the worlds."""
        return tuple(world.name for world in self.plan.worlds)

    @property
    def agents(self) -> tuple[str, ...]:
        """The labels of the agents."""
        return tuple(spec.label for spec in self.plan.agents)

    def total_regret(self, world: str, agent: str) -> Floats:
        """Return the cumulative regret R(T) of every seed.

        Parameters
        ----------
        world : str
            Name of the world.
        agent : str
            Label of the agent.

        Returns
        -------
        ndarray of shape (seeds,)

        Raises
        ------
        HalfseenError
            If the world or the agent is not part of the run.

        Examples
        --------
        >>> import halfseen as hs
        >>> result = hs.run("random", world="orbit", rounds=50, seeds=3)
        >>> bool((result.total_regret("orbit", "random") > 0).all())
        True
        """
        if world not in self.worlds:
            raise unknown("world", world, self.worlds)
        if agent not in self.agents:
            raise unknown("agent", agent, self.agents)
        return np.asarray(self.tracks[world, agent].regret.sum(axis=1))

    def growth_exponent(self, world: str, agent: str) -> Estimate:
        """Estimate the exponent β with which the regret grows late in the run, as R(t) ∝ t^β.

        Parameters
        ----------
        world : str
            Name of the world.
        agent : str
            Label of the agent.

        Returns
        -------
        Estimate
            β with its 95 % interval.
        """
        return growth_exponent(self.tracks[world, agent].regret)

    def microseconds_per_round(self, world: str, agent: str) -> Floats:
        """Return the processor time to decide and learn, per stream and round, in every chunk of 200 rounds.

        Parameters
        ----------
        world : str
            Name of the world.
        agent : str
            Label of the agent.

        Returns
        -------
        ndarray of shape (chunks,)
        """
        return microseconds_per_round(self.tracks[world, agent].seconds, len(self.plan.seeds), self.plan.rounds)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All measurements as plain data, as in `summary.json`."""
        return {
            "rounds": self.plan.rounds,
            "seeds": list(self.plan.seeds),
            "jobs": self.jobs,
            "wall_seconds": self.wall_seconds,
            "versions": dict(versions()),
            "agents": {spec.label: {"name": spec.name, "options": dict(spec.options)} for spec in self.plan.agents},
            "worlds": {
                world.name: {"settings": all_settings(world), **self._world_summary(world)}
                for world in self.plan.worlds
            },
        }

    def _world_summary(self, world: World) -> dict[str, Any]:
        if isinstance(world, RecordedWorld):
            return {"rewards": reward_summary(self, world), "microseconds_per_round": self.speeds(world.name)}
        return {"agents": {agent: self._agent_summary(world.name, agent) for agent in self.agents}}

    def speeds(self, world: str) -> dict[str, float]:
        """Return the mean processor time per stream and round in microseconds, by agent.

        The first chunk of rounds is left out, because kernels may have been compiled in it.
        """
        return {agent: mean_without_first_chunk(self.microseconds_per_round(world, agent)) for agent in self.agents}

    def _agent_summary(self, world: str, agent: str) -> dict[str, Any]:
        track = self.tracks[world, agent]
        total = self.total_regret(world, agent)
        cumulative = np.cumsum(track.regret, axis=1)
        at = log_grid(self.plan.rounds, 60)
        world_object = next(one for one in self.plan.worlds if one.name == world)
        micros = mean_without_first_chunk(self.microseconds_per_round(world, agent))
        return {
            "regret_mean": float(total.mean()),
            "regret_median": float(np.median(total)),
            "regret_standard_error": standard_error(total),
            "regret_by_seed": total.tolist(),
            "growth_exponent": self.growth_exponent(world, agent).as_dict(),
            "mean_estimation_error": float(track.error.mean()),
            "microseconds_per_round": micros,
            "rounds_per_second": 1e6 / micros,
            "curve": {
                "rounds": at.tolist(),
                "mean": cumulative[:, at - 1].mean(axis=0).tolist(),
                "standard_error": [standard_error(cumulative[:, t - 1]) for t in at],
            },
            "theory": theorem_quantities(
                regret=track.regret,
                error=track.error,
                context_norm=track.context_norm,
                arm_norm=track.arm_norm,
                checkpoints=track.checkpoints,
                gram=track.gram,
                latent=world_object.latent,
                arms=world_object.arms,
            ),
        }

    def table(self) -> Table:
        """Return a table with one row per world and agent.

        Returns
        -------
        Table
            For simulated worlds: R(T), its growth exponent, the estimation error and the speed. For recorded worlds:
            the rewards, as in `agents_table`.
        """
        if self.recorded:
            return Table([{"world": world} | row for world in self.worlds for row in self.agents_table(world).rows])
        return regret_table(self.summary)

    @property
    def recorded(self) -> bool:
        """Whether the worlds are recorded. If so, tables and figures show rewards instead of regret."""
        return all(world.recorded for world in self.plan.worlds)

    def agents_table(self, world: str) -> Table:
        """Return the rewards of the agents in one recorded world.

        Parameters
        ----------
        world : str
            Name of the world.

        Returns
        -------
        Table
            One row per agent.
        """
        return rewards_table(self.summary["worlds"][world])

    def to_frame(self, per: str = "agent", *, library: str | None = None) -> Any:
        """Return the results as a DataFrame of numbers.

        Parameters
        ----------
        per : {"agent", "seed", "round"}, default "agent"
            What a row is: an agent in a world, one seed of an agent in a world, or one round of such a seed.
        library : {"pandas", "polars", "pyarrow"}, optional
            The library of the DataFrame. By default, the first of them that is installed.

        Returns
        -------
        DataFrame
            The first columns are `world`, `agent` and, for a sweep, one column per swept option, which is NaN or null
            for agents without the option. The other columns depend on `per`. Per agent: `regret_mean`,
            `regret_standard_error`, `regret_median`, `growth_exponent` with the ends `_low` and `_high` of its
            interval, `reward_mean`, `estimation_error` and `microseconds_per_round`. Per seed: `seed`, `regret` (the
            sum) and `reward` (the mean). Per round: `seed`, `round`, `arm`, `reward`, `regret`, `error` and, if an
            agent returns propensities, `propensity`.

        Raises
        ------
        HalfseenError
            If the library is not installed, or if `per` has another value.

        Examples
        --------
        >>> import halfseen as hs
        >>> result = hs.run(["ts-pco", "random"], world="orbit", rounds=50, seeds=3)
        >>> result.to_frame()["agent"].to_list()
        ['ts-pco', 'random']
        >>> len(result.to_frame("round"))
        300
        """
        Words(("agent", "seed", "round")).check("per", per)
        parts = [self._frame_part(world, agent, per) for world in self.worlds for agent in self.agents]
        names = dict.fromkeys(name for part in parts for name in part)
        lengths = [len(next(iter(part.values()))) for part in parts]
        columns = {
            name: np.concatenate(
                [
                    part[name] if name in part else np.full(length, np.nan)
                    for part, length in zip(parts, lengths, strict=True)
                ]
            )
            for name in names
            if name not in ("world", "agent", *grid_options(self))
        }
        labels = {
            "world": np.repeat([world for world in self.worlds for _ in self.agents], lengths),
            "agent": np.repeat([agent for _ in self.worlds for agent in self.agents], lengths),
        }
        for option in grid_options(self):
            rows = {row["label"]: row["values"].get(option) for row in grid_rows(self)}
            values = [rows[agent] for _ in self.worlds for agent in self.agents]
            numeric = all(isinstance(value, int | float) for value in values if value is not None)
            if numeric:
                cells = np.array([math.nan if value is None else value for value in values])
            else:  # libraries of data frames do not mix numbers and texts in a column
                cells = np.array([None if value is None else str(value) for value in values], dtype=object)
            labels[option] = np.repeat(cells, lengths)
        return data_frame(labels | columns, library)

    def _frame_part(self, world: str, agent: str, per: str) -> dict[str, Any]:
        """Return the columns of one agent in one world, except the names of the world, the agent and its options."""
        track, seeds, rounds = self.tracks[world, agent], np.array(self.plan.seeds), self.plan.rounds
        if per == "seed":
            return {"seed": seeds, "regret": track.regret.sum(axis=1), "reward": track.reward.mean(axis=1)}
        if per == "round":
            columns = {
                "seed": np.repeat(seeds, rounds),
                "round": np.tile(np.arange(1, rounds + 1), len(seeds)),
                "arm": track.arm.ravel().astype(np.int64),
                "reward": track.reward.ravel(),
                "regret": track.regret.ravel(),
                "error": track.error.ravel(),
            }
            return columns if track.propensity is None else columns | {"propensity": track.propensity.ravel()}
        total, growth = track.regret.sum(axis=1), self.growth_exponent(world, agent)
        numbers = {
            "regret_mean": total.mean(),
            "regret_standard_error": standard_error(total),
            "regret_median": np.median(total),
            "growth_exponent": growth.value,
            "growth_exponent_low": growth.low,
            "growth_exponent_high": growth.high,
            "reward_mean": track.reward.mean(),
            "estimation_error": track.error.mean(),
            "microseconds_per_round": mean_without_first_chunk(self.microseconds_per_round(world, agent)),
        }
        return {name: np.array([value], dtype=np.float64) for name, value in numbers.items()}

    def plot(
        self,
        path: str | Path | None = None,
        *,
        agents: Sequence[str] | None = None,
        scale: str = "linear",
        ax: Axes | None = None,
    ) -> Figure:
        """Plot cumulative and instantaneous regret, or rewards for recorded worlds, with one column per world.

        Parameters
        ----------
        path : str or Path, optional
            File to which the figure is saved, as PNG or SVG.
        agents : sequence of str, optional
            Labels of the agents to show, in this order. By default all.
        scale : {"linear", "log"}, default "linear"
            Scale of both axes. With "log", regret that grows as t^β is a line with the slope β. Rewards of recorded
            worlds can be negative, so they have no logarithmic scale.
        ax : matplotlib.axes.Axes, optional
            Axes into which the cumulative regret or reward is drawn instead of a new figure. The result must have
            only one world.

        Returns
        -------
        matplotlib.figure.Figure
            The new figure, or the figure of `ax`.

        Raises
        ------
        HalfseenError
            If an agent is not part of the run, or if another argument is invalid.
        """
        from halfseen.experiments.report import result_figure

        Words(("linear", "log")).check("scale", scale)
        chosen = None if agents is None else as_list("agents", agents, "a list of labels of agents")
        for agent in chosen or ():
            if agent not in self.agents:
                raise unknown("agent", agent, self.agents)
        if chosen == []:
            raise invalid("agents", "at least one agent", "none")
        if ax is not None and len(self.worlds) > 1:
            raise invalid("ax", "a result with one world", count(self.worlds, "world"))
        if ax is not None and not hasattr(ax, "plot"):
            raise invalid("ax", "the axes of a Matplotlib figure", type(ax).__name__)
        figure = result_figure(self, agents=chosen, scale=scale, axes=ax)
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def grid_table(self) -> Table:
        """Return a table of a sweep with one row per world and agent, and one column per option.

        Returns
        -------
        Table
            R(T) with its standard error (for recorded worlds, the mean reward), and a mark in the row with each agent's
            best values of the options.

        Raises
        ------
        HalfseenError
            If the result is not a sweep.

        Examples
        --------
        >>> import halfseen as hs
        >>> sweep = hs.run("lag-ts", world="orbit", rounds=50, seeds=3, grid={"lags": [1, 2]})
        >>> [row["lags"] for row in sweep.grid_table().rows]
        ['1', '2']
        """
        self._check_sweep()
        return grid_table(self)

    def plot_grid(self, path: str | Path | None = None) -> Figure:
        """Plot R(T), or the mean reward for recorded worlds, against the first option of a sweep.

        Parameters
        ----------
        path : str or Path, optional
            File to which the figure is saved, as PNG or SVG.

        Returns
        -------
        matplotlib.figure.Figure
            One panel per world, and one line per agent and combination of the other options. Agents without the option
            are horizontal lines.

        Raises
        ------
        HalfseenError
            If the result is not a sweep.
        """
        from halfseen.experiments.report import result_grid_figure

        self._check_sweep()
        figure = result_grid_figure(self)
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def _check_sweep(self) -> None:
        if not self.plan.grid:
            raise invalid("grid", "the result of hs.run with grid=", "a result without a sweep")

    def save(self, folder: str | Path) -> None:
        """Write `summary.json`, `rounds.parquet`, `report.html`, `regret.png` and `regret.svg`.

        For recorded worlds, `reward.png`, `reward.svg`, `arms.png`, `arms.svg` and `table.md` replace `regret.png` and
        `regret.svg`. A sweep also has `grid.png` and `grid.svg`.

        Parameters
        ----------
        folder : str or Path
            Folder for the files. It is created if it does not exist.
        """
        from halfseen.experiments.report import write_recorded, write_simulated

        target = make_folder(folder)
        if self.recorded:
            write_recorded(self, target)
        else:
            write_simulated(self, target)
        write_rounds(self, target / "rounds.parquet")
        write_json(target / "summary.json", self.summary)


def write_rounds(result: Result, path: Path) -> None:
    """Write all rounds to a Parquet table, with one row group per world and agent."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("pyarrow", "experiments", "writing rounds.parquet") from None
    names = pa.dictionary(pa.int32(), pa.string())
    with_propensity = any(track.propensity is not None for track in result.tracks.values())
    schema = pa.schema(
        [
            ("world", names),
            ("agent", names),
            ("seed", pa.int64()),
            ("round", pa.int32()),
            ("arm", pa.int16()),
            ("reward", pa.float32()),
            ("regret", pa.float32()),
            ("error", pa.float32()),
            *([("propensity", pa.float32())] if with_propensity else []),
        ]
    )
    seed_count, rounds = len(result.plan.seeds), result.plan.rounds
    seeds = np.repeat(np.array(result.plan.seeds, dtype=np.int64), rounds)
    numbers = np.tile(np.arange(1, rounds + 1, dtype=np.int32), seed_count)
    zeros = np.zeros(seed_count * rounds, dtype=np.int32)
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema, compression="zstd") as writer:
        for (world, agent), track in result.tracks.items():
            columns = [
                pa.DictionaryArray.from_arrays(zeros, [world]),
                pa.DictionaryArray.from_arrays(zeros, [agent]),
                seeds,
                numbers,
                track.arm.ravel().astype(np.int16),
                track.reward.ravel().astype(np.float32),
                track.regret.ravel().astype(np.float32),
                track.error.ravel().astype(np.float32),
            ]
            if with_propensity:
                offered = np.full(track.arm.shape, np.nan) if track.propensity is None else track.propensity
                columns.append(offered.ravel().astype(np.float32))
            writer.write_table(pa.table(columns, schema=schema))
    write_atomically(path, buffer.getbuffer().tobytes())
