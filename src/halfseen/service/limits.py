"""What the service takes at most: all of it here, so that one page can say it and one place can change it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from halfseen.errors import invalid


@dataclass(frozen=True)
class Limits:
    """Each may be set when the service is started; what goes beyond one is refused, and nothing is kept of it."""

    body_bytes: int = 1_048_576  # of a request, other than an import
    import_bytes: int = 1_073_741_824
    batch: int = 1_000  # rows of one batch
    streams: int = 10_000
    observed: int = 1_000  # numbers of one observation
    arms: int = 1_000  # of one stream, retired ones counted
    page: int = 1_000  # streams or events of one answer
    rate: float = 0.0  # requests a second and token; 0: no such limit

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "rate" else 1
            if not value >= least:
                raise invalid(field.name, value, f"a number of at least {least}")
