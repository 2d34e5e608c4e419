"""Save files: they are read completely or refused."""

import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
from settings import assert_same_state, make_small, play_rounds, simulate_rounds

import halfseen as hs
from halfseen.agents.saving import OLDEST, VERSION
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
    with pytest.raises(
        SaveFileError, match=f"expected save version {OLDEST} to {VERSION}, got .* of save version {version}"
    ):
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


def read_header(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("header.json"))


@pytest.mark.parametrize(
    "change",
    [
        {"arms": 10**12}, {"arms": 10**30}, {"arms": -1}, {"arms": None}, {"arms": 3.5}, {"arms": True},
        {"observed": 10**9}, {"observed": "three"}, {"observed": []}, {"max_pending": 0}, {"max_pending": 0.5},
        {"max_pending": "all"}, {"seed": 2**64}, {"seed": None}, {"name": "nobody"}, {"name": None}, {"name": 7},
        {"regularisation": 0.0}, {"regularisation": float("nan")}, {"regularisation": [[1.0], [2.0, 3.0]]},
        {"width": "wide"}, {"model": 3}, {"model": None}, {"model": {"$model": {"transition": 1.0}}},
        {"model": {"$array": "nobody.npy"}}, {"unknown": 1},
    ],
    ids=repr,
)  # fmt: skip
def test_a_recipe_that_fits_no_agent_is_refused(saved, change):
    _, path = saved
    rewrite_header(path, recipe=read_header(path)["recipe"] | change)
    with pytest.raises(SaveFileError) as refused:
        hs.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["name", "observed", "arms", "seed", "max_pending", "model"])
def test_a_recipe_without_a_required_entry_is_refused(saved, name):
    _, path = saved
    recipe = read_header(path)["recipe"]
    del recipe[name]
    rewrite_header(path, recipe=recipe)
    with pytest.raises(SaveFileError, match="is inconsistent"):
        hs.load(path)


@pytest.mark.parametrize(
    ("agent", "options"),
    [("emkf-ts", {"latent": 30_000}), ("lag-ts", {"lags": 10**5}), ("hmm-ts", {"states": 20_000}),
     ("hmm-ts", {"restarts": 10**9}), ("hmm-ts", {"warm_up": 10**15}), ("mts", {"memory": 10**15}),
     ("em-rts-ts", {"iterations": 10**12}), ("adaptive", {"latent": 30_000})],
    ids=repr,
)  # fmt: skip
def test_an_option_that_would_fill_the_memory_is_refused(tmp_path, agent, options):
    path = tmp_path / "agent.hs"
    make_small(agent).save(path)
    rewrite_header(path, recipe=read_header(path)["recipe"] | options)
    with pytest.raises(SaveFileError, match="is inconsistent"):
        hs.load(path)


@pytest.mark.parametrize("header", [b"[]", b"3", b"null", b'"x"', b"{}", b"[" * 100_000, b"", b"\xff", b"9" * 10_000])
def test_a_header_that_is_not_an_object_is_refused(tmp_path, header):
    with zipfile.ZipFile(tmp_path / "agent.hs", "w") as archive:
        archive.writestr("header.json", header)
    with pytest.raises(SaveFileError):
        hs.load(tmp_path / "agent.hs")


def replace_member(path, name, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path) as archive:
        members = {one: archive.read(one) for one in archive.namelist()} | {name: content}
    with zipfile.ZipFile(path, "w", method, compresslevel=9) as archive:
        for one, body in members.items():
            archive.writestr(one, body)


def npy(shape, dtype="<f8", body=b"", order=False):
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": order, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + body


@pytest.mark.parametrize(
    "content",
    [
        npy((10**15,)), npy((2**62, 2**62)), npy((-1,)), npy((-1, -1), body=bytes(8)), npy((0, 2**70)),
        npy((3,), body=bytes(16)), npy((2,), "|O", bytes(16)), npy((1,), "|V8", bytes(8)), npy((), "<U0"),
        npy((1,), "<M8[s]", bytes(8)), b"", b"\x93NUMPY", b"no array", npy((1,), body=bytes(8))[:20],
    ],
)  # fmt: skip
def test_an_array_that_is_not_what_it_claims_is_refused(saved, content):
    _, path = saved
    replace_member(path, "array-0.npy", content)
    with pytest.raises(SaveFileError):
        hs.load(path)


@pytest.mark.parametrize("member", ["header.json", "array-0.npy"])
def test_a_file_that_expands_to_gigabytes_is_refused(saved, member):
    _, path = saved
    body = b" " * (1 << 28) if member == "header.json" else npy((1 << 25,), body=bytes(1 << 28))
    replace_member(path, member, body)
    assert path.stat().st_size < 500_000
    tracemalloc.start()
    with pytest.raises(SaveFileError):
        hs.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1000 * path.stat().st_size + (16 << 20)


def test_other_methods_of_compression_are_refused(saved):
    _, path = saved
    with zipfile.ZipFile(path) as archive:
        header = archive.read("header.json")
    replace_member(path, "header.json", header, zipfile.ZIP_LZMA)
    with pytest.raises(SaveFileError):
        hs.load(path)


def test_zeros_compress_as_well_as_the_limit_allows(tmp_path):
    """The state of a new agent is mostly zeros, and its file must not be mistaken for a bomb."""
    agent = hs.make("hmm-ts", observed=40, arms=2, warm_up=100_000)
    agent.save(tmp_path / "agent.hs")
    assert sum(array.nbytes for array in agent.state().values()) > 200 * (tmp_path / "agent.hs").stat().st_size
    assert_same_state(agent, hs.load(tmp_path / "agent.hs"))
