"""Files are written completely or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async._files.atomic import _create_draft
from outreach_async._plumbing import atomic_file, atomic_write

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="links, permissions and pipes are POSIX's")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "report.txt"
    path.write_text("old", encoding="utf-8")
    return path


def beside(path: Path) -> list[str]:
    """Return the other files in the folder, including hidden ones."""
    return sorted(set(os.listdir(path.parent)) - {path.name})  # noqa: PTH208 - only names are needed


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_reader_of_the_old_file_is_not_disturbed_by_a_new_one(path: Path) -> None:
    with path.open(encoding="utf-8") as reader:
        atomic_write(path, "new")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert beside(path) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_the_old_file_and_no_draft(path: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with atomic_file(path) as draft:
            draft.write(b"half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text(encoding="utf-8") == "old"
    assert beside(path) == []


@pytest.mark.parametrize("name", ["new.txt", "x" * 255], ids=["short", "longest"])
def test_a_new_file_does_not_exist_until_the_block_ends(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with atomic_file(path) as draft:
        draft.write(b"new")
        assert not path.exists()
    assert path.read_text(encoding="utf-8") == "new"
    assert beside(path) == []


def test_a_folder_at_the_path_is_kept_and_no_draft_is_left(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError, match="folder"):
        atomic_write(path, "new")
    assert beside(path) == []


@on_posix
def test_a_file_keeps_its_permissions_and_its_draft_is_private(path: Path) -> None:
    path.chmod(0o640)
    with atomic_file(path):
        (draft,) = beside(path)
        assert mode(path.with_name(draft)) == 0o600
    assert mode(path) == 0o640


@on_posix
def test_a_new_file_has_the_default_permissions_unless_it_is_private(tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    atomic_write(tmp_path / "new", "text")
    with atomic_file(tmp_path / "private", private=True):
        pass
    assert (mode(tmp_path / "new"), mode(tmp_path / "private")) == (mode(tmp_path / "any"), 0o600)


def test_threads_that_write_one_file_do_not_share_a_draft(path: Path) -> None:
    with atomic_file(path) as one, atomic_file(path) as other:
        one.write(b"one")
        other.write(b"other")
        assert len(beside(path)) == 2
    assert path.read_text(encoding="utf-8") == "one"
    assert beside(path) == []


def test_the_name_of_a_draft_cannot_be_predicted(path: Path) -> None:
    def draft() -> str:
        with atomic_file(path):
            return beside(path)[0]

    assert len({draft() for _ in range(9)}) == 9


@on_posix
def test_a_draft_follows_no_link(path: Path) -> None:
    trap = path.with_name("trap")
    trap.symlink_to(path)
    with pytest.raises(FileExistsError):
        _create_draft(trap, private=True)
    assert path.read_text(encoding="utf-8") == "old"


@on_posix
def test_a_symlink_is_kept_and_its_target_is_replaced(path: Path) -> None:
    link = path.with_name("link.txt")
    link.symlink_to(path)
    atomic_write(link, "new\r\n")
    assert link.is_symlink()
    assert path.read_bytes() == b"new\r\n"


@on_posix
def test_a_circular_symlink_is_replaced_by_the_file(tmp_path: Path) -> None:
    link, other = tmp_path / "link.txt", tmp_path / "other.txt"
    link.symlink_to(other)
    other.symlink_to(link)
    atomic_write(link, "new")
    assert link.read_text(encoding="utf-8") == "new"


@on_posix
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    atomic_write(pipe, "text")
    reader.join(600)
    assert read == [b"text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_lone_surrogate_is_written_as_an_escape(path: Path) -> None:
    atomic_write(path, "a\ud800")
    assert path.read_bytes() == b"a\\ud800"


@given(st.text())
def test_a_text_file_has_no_control_characters_but_newlines_and_tabs(text: str) -> None:
    with TemporaryDirectory() as folder:
        atomic_write(Path(folder) / "report", text)
        written = (Path(folder) / "report").read_bytes().decode()
    assert {character for character in written.replace("\r\n", "\n") if category(character) == "Cc"} <= {"\n", "\t"}


@given(st.dictionaries(st.text(), st.text()))
def test_json_is_written_without_loss(values: dict[str, str]) -> None:
    with TemporaryDirectory() as folder:
        atomic_write(Path(folder) / "report.json", json.dumps(values, ensure_ascii=False))
        assert json.loads((Path(folder) / "report.json").read_bytes()) == values
