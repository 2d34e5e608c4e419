"""What goes into the engine and what comes out: streams, questions, rewards, answers, settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct, field

from halfseen.errors import invalid
from halfseen.journal.events import NAME
from halfseen.journal.events import Arm as Arm
from halfseen.validation import LIMIT

MOST_KEY = 200  # characters of an idempotency key
_LONGEST_WAIT = 1e9  # seconds
_FOR_EVER = 2**62  # microseconds, which databases can still hold when the time is added

Observation = list[float | None] | dict[str, float | None]


class StreamSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a stream is made. `options` are those of the agent; a `model` among them is a table of its matrices.

    A decision without a reward after `reward_wait` seconds is credited `default_reward`, or with None given up. What
    comes later is recorded, and with late_rewards="fold" learnt, in the place of the default if there is one.
    """

    name: str
    observed: int | list[str]
    arms: int | list[str]
    agent: str = "adaptive"
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None  # drawn when the stream is created, and recorded
    reward_wait: float | None = None  # seconds
    default_reward: float | None = None
    late_rewards: Literal["record", "fold"] = "record"

    @property
    def features(self) -> tuple[str, ...] | None:
        """The names of the observed entries, if they have names."""
        return None if isinstance(self.observed, int) else tuple(self.observed)

    @property
    def defaults_give_way(self) -> bool:
        """Whether a late reward is put in the place of the default that was learnt."""
        return self.late_rewards == "fold" and self.default_reward is not None

    @property
    def wait(self) -> int | None:
        """The reward wait in microseconds."""
        return None if self.reward_wait is None else int(min(self.reward_wait * 1e6, _FOR_EVER))

    def check(self) -> None:
        """Refuse what no agent is asked about; the rest is refused when the agent is made."""
        if not NAME.fullmatch(self.name):
            raise invalid(
                "name", repr(self.name), "up to 100 letters, digits, '.', '_' and '-', a letter or digit first"
            )
        names = self.features
        if names is not None and (not names or "" in names or len(set(names)) < len(names)):
            raise invalid(
                "observed", repr(self.observed), "a count of at least 1, or names that differ from each other"
            )
        if self.reward_wait is not None and not 0 < self.reward_wait <= _LONGEST_WAIT:
            raise invalid("reward_wait", self.reward_wait, f"seconds above 0, at most {_LONGEST_WAIT:g}, or nothing")
        if self.late_rewards == "fold" and self.reward_wait is None:
            raise invalid("late_rewards", "'fold'", "a reward_wait with it: without one no reward is late")
        if self.default_reward is not None:
            if self.reward_wait is None:
                raise invalid("default_reward", self.default_reward, "a reward_wait with it")
            if not abs(self.default_reward) <= LIMIT:
                raise invalid("default_reward", self.default_reward, f"a number within ±{LIMIT:g}, or nothing")


class StreamView(Struct, frozen=True, kw_only=True):
    """A stream as it stands."""

    name: str
    spec: StreamSpec  # as created, with its seed
    arms: list[Arm]  # all there have ever been, in order
    active: list[Arm]  # those that can be chosen
    version: int  # number of its last event
    decisions: int
    rewards: int  # given by callers, late ones too; defaults are not counted
    created: int  # microseconds since 1970, UTC
    updated: int  # of the last event
    retired: bool


class Ask(Struct, frozen=True, forbid_unknown_fields=True):
    """A question: what was seen (None: not seen), which arms may be played, and a key under which to repeat it."""

    observation: Observation
    available: list[Arm] | None = None
    key: str | None = None


class Decided(Struct, frozen=True):
    """The answer, once it is on disk. Lists are by arm, in the order of all arms there were."""

    id: str
    arm: Arm
    propensity: float
    propensities: list[float]
    expected: list[float | None]  # None where it is beyond all numbers
    repeated: bool = False  # the key was known: this is the decision made then


class Told(Struct, frozen=True, forbid_unknown_fields=True):
    """A reward of a decision."""

    decision: str
    value: float


class Rewarded(Struct, frozen=True):
    """What became of a reward: `how` is "given", "default" (the wait is over) or "late"; `folded` whether it taught.

    A late reward that taught has taken the place of the default, if there was one.
    """

    decision: str
    value: float
    how: str
    folded: bool
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an engine runs."""

    queue_rows: int = 10_000  # that may wait; more are refused with 503
    batch_rows: int = 2_000  # that share one commit at most
    resident_bytes: int = 1 << 30  # of agents kept in memory; the least recently used go first
    snapshot_every: int = 5_000  # events of a stream; or half the decisions that wait, if that is more
    max_streams: int = 100_000
    identify: bool = True  # models in a process beside this one
    sweep_seconds: float = 1.0  # between looks for reward waits that are over
    lock_seconds: float = 10.0  # to wait for a database that others are writing to
    stall_seconds: float = 30.0  # after which callers no longer wait for a batch, and get 503 until it is done
