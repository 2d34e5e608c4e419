"""Every round of every agent as one Parquet table."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from halfseen.errors import missing_extra
from halfseen.reports.files import write_atomically

if TYPE_CHECKING:
    from halfseen.experiments.result import Result


def write_rounds(result: Result, path: Path) -> None:
    """Columns world, agent, seed, round, arm, reward, regret, error; a row group a world and agent."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise missing_extra("pyarrow", "experiments", "writing rounds.parquet") from None
    names = pa.dictionary(pa.int32(), pa.string())
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
        ]
    )
    count, rounds = len(result.plan.seeds), result.plan.rounds
    seeds = np.repeat(np.array(result.plan.seeds, dtype=np.int64), rounds)
    numbers = np.tile(np.arange(1, rounds + 1, dtype=np.int32), count)
    zeros = np.zeros(count * rounds, dtype=np.int32)
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
            writer.write_table(pa.table(columns, schema=schema))
    write_atomically(path, buffer.getbuffer().tobytes())
