"""Save files: they are read completely or refused."""

import json
import os
import zipfile

import numpy as np
import pytest
from settings import assert_same_state, make_small, play_rounds, simulate_rounds

import halfseen as hs
from halfseen.agents.saving import VERSION
from halfseen.errors import SaveFileError


@pytest.fixture
def saved(tmp_path):
    agent = make_small("kf-ts")
    play_rounds(agent, *simulate_rounds(30))
    agent.save(tmp_path / "agent.hs")
    return agent, tmp_path / "agent.hs"


def rewrite_header(path, **changes):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"]) | changes
    members["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(saved, share):
    _, path = saved
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(
        SaveFileError, match=r"expected a complete file of format 'halfseen agent', got .*truncated or damaged"
    ):
        hs.load(path)


def test_a_damaged_byte_is_refused_or_harmless(saved):
    agent, path = saved
    content = bytearray(path.read_bytes())
    refused = 0
    for position in range(0, len(content), max(1, len(content) // 200)):
        damaged = content.copy()
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            assert_same_state(agent, hs.load(path))
        except hs.HalfseenError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("version", [1, VERSION + 1])
def test_a_file_of_another_save_version_is_refused(saved, version):
    _, path = saved
    rewrite_header(path, version=version)
    with pytest.raises(SaveFileError, match=f"expected save version {VERSION}, got .* of save version {version}"):
        hs.load(path)


def test_a_file_of_another_format_is_refused(saved):
    _, path = saved
    rewrite_header(path, format="something else")
    with pytest.raises(
        SaveFileError, match=r"expected a file of format 'halfseen agent', got .* of format 'something else'"
    ):
        hs.load(path)


def test_a_file_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(SaveFileError, match="There is no file"):
        hs.load(tmp_path / "nowhere.hs")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(SaveFileError, match="Cannot read"):
        hs.load(tmp_path)


def test_saving_into_a_missing_folder_fails(tmp_path):
    agent = make_small("ts-pco")
    with pytest.raises(SaveFileError, match="Cannot write"):
        agent.save(tmp_path / "missing" / "agent.hs")


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    agent, path = saved
    before = path.read_bytes()
    play_rounds(agent, *simulate_rounds(5))

    def disk_full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(SaveFileError, match="No space left on device"):
        agent.save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_arrays_contain_no_pickled_objects(saved):
    _, path = saved
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as member:
                    np.lib.format.read_array(member, allow_pickle=False)


def test_names_of_arms_are_saved(tmp_path):
    agent = hs.make("ts-pco", observed=2, arms=["hold", "buy"], seed=3)
    agent.decide([1.0, 2.0])
    agent.save(tmp_path / "a.hs")
    twin = hs.load(str(tmp_path / "a.hs"))
    assert twin.arms == ("hold", "buy")
    assert twin.pending == (1,)
    assert twin.name == "ts-pco"


def test_saving_over_a_file_keeps_its_permissions_and_links(saved, tmp_path):
    agent, path = saved
    path.chmod(0o600)
    link = tmp_path / "link.hs"
    link.symlink_to(path)
    agent.save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_header_that_contradicts_the_arrays_is_refused(saved):
    _, path = saved
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
    rewrite_header(path, recipe=header["recipe"] | {"arms": 7})
    with pytest.raises(SaveFileError, match="is inconsistent"):
        hs.load(path)


@pytest.mark.parametrize("added", [3, [3], [{"name": "x", "params": None, "round": 4}], [{"name": None}]])
def test_invalid_added_arms_are_refused(saved, added):
    _, path = saved
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("header.json"))
    rewrite_header(path, recipe=header["recipe"] | {"added": added})
    with pytest.raises(SaveFileError, match="is inconsistent"):
        hs.load(path)
