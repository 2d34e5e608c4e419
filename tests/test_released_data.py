"""Data written by every released version can be opened.

`tests/data/write.py` wrote the folders, each with the version that it is named after.
"""

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from data.write import next_decisions, state_of_streams
from engine_tools import open_engine
from settings import OBSERVED

import halfseen as hs

FOLDERS = [
    folder for folder in sorted((Path(__file__).parent / "data").iterdir()) if (folder / "expected.json").exists()
]
EXPECTED = {folder: json.loads((folder / "expected.json").read_text()) for folder in FOLDERS}
AGENTS = [
    pytest.param(folder, name, id=f"{folder.name}-{name}") for folder in FOLDERS for name in EXPECTED[folder]["agents"]
]


def test_there_is_data_of_the_first_version_to_be_kept():
    assert "0.2.0" in [folder.name for folder in FOLDERS]


@pytest.mark.parametrize(("folder", "name"), AGENTS)
def test_a_save_file_opens_and_the_agent_decides_as_before(folder, name):
    agent = hs.load(folder / f"{name}.hs")
    assert agent.name == name
    for decision, expected in zip(next_decisions(agent), EXPECTED[folder]["agents"][name], strict=True):
        assert decision["arm"] == expected["arm"]
        np.testing.assert_allclose(decision["propensities"], expected["propensities"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_file_of_a_fleet_opens_and_its_streams_decide_as_before(folder):
    fleet = hs.load(folder / "fleet.hs")
    assert fleet.names == ["first", "second"]
    assert fleet.decide(np.zeros((2, OBSERVED))).indices.tolist() == EXPECTED[folder]["fleet"]


def assert_streams(url, expected):
    streams = asyncio.run(state_of_streams(url))
    assert streams.keys() == expected.keys()
    for name, stream in streams.items():
        propensities = stream.pop("propensities", [])
        np.testing.assert_allclose(propensities, expected[name].get("propensities", []), rtol=0, atol=1e-9)
        assert stream == {field: value for field, value in expected[name].items() if field != "propensities"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_database_opens_and_its_streams_decide_as_before(folder, tmp_path):
    assert_streams(shutil.copy(folder / "journal.db", tmp_path), EXPECTED[folder]["streams"])


@pytest.mark.parametrize("ending", ["ndjson", "parquet"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_an_export_is_imported_and_its_streams_decide_as_before(folder, ending, tmp_path):
    url = str(tmp_path / "imported.db")

    async def import_export():
        async with open_engine(url) as engine:
            await engine.import_streams(folder / f"journal.{ending}")

    asyncio.run(import_export())
    assert_streams(url, EXPECTED[folder]["streams"])
