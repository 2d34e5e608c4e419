"""Files appear whole or not at all, and folders that cannot be written to are refused before the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfseen.errors import HalfseenError
from halfseen.reports.files import check_folder, staged


def test_older_files_survive_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def write() -> None:
        with staged(tmp_path) as stage:
            (stage / "a").write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]
    with staged(tmp_path) as stage:
        (stage / "a").write_text("new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "new")]


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nothing" / "there")
    for folder in (file, file / "below" / "it", tmp_path / "new" / ("x" * 300), dangling):
        with pytest.raises(HalfseenError, match="folder that can be written to"):
            check_folder(folder)
    check_folder(tmp_path / "not" / "yet")
    assert sorted(tmp_path.iterdir()) == [dangling, file]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that refuses even its owner")
def test_a_folder_that_only_trying_shows_to_be_closed() -> None:
    with pytest.raises(HalfseenError, match="out: expected a folder that can be written to, got '/proc/halfseen/out'"):
        check_folder("/proc/halfseen/out")
