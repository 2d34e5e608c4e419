"""Files are written atomically, and folders that are not writable are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfseen.errors import HalfseenError
from halfseen.reports.files import check_folder, staged


def test_existing_files_do_not_change_after_an_error(tmp_path: Path) -> None:
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


def test_impossible_folders_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nothing" / "there")
    for folder in (file, file / "below" / "it", tmp_path / "new" / ("x" * 300), dangling):
        with pytest.raises(HalfseenError, match=r"^out: expected a writable folder "):
            check_folder(folder)
    check_folder(tmp_path / "not" / "yet")
    assert sorted(tmp_path.iterdir()) == [dangling, file]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, in which no folder can be created")
def test_a_folder_that_cannot_be_created_is_refused() -> None:
    with pytest.raises(HalfseenError, match=r"^out: expected a writable folder \(.*\), got '/proc/halfseen/out'$"):
        check_folder("/proc/halfseen/out")
