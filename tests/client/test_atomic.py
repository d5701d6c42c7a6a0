"""Files are written whole or not at all."""

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

from outreach_async.atomic import atomic_path, atomic_write

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="links, permissions and pipes are POSIX's")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the place of a file that is there."""
    path = tmp_path / "report.txt"
    path.write_text("old", encoding="utf-8")
    return path


def beside(path: Path) -> list[str]:
    """Return what stands beside a file, hidden files too."""
    return sorted(set(os.listdir(path.parent)) - {path.name})  # noqa: PTH208 - names are all that is wanted


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_whoever_reads_a_file_while_it_is_written_again_reads_the_old_one(path: Path) -> None:
    with path.open(encoding="utf-8") as reader:
        atomic_write(path, "new")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert beside(path) == []


def test_a_file_that_cannot_be_written_leaves_the_old_one(path: Path) -> None:
    path.with_name(f".report.txt.{os.getpid()}.tmp").mkdir()
    with pytest.raises(OSError, match="tmp"):
        atomic_write(path, "new")
    assert path.read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_the_old_one_and_nothing_beside_it(path: Path, error: type[BaseException]) -> None:
    def write() -> None:
        with atomic_path(path) as draft:
            draft.write_text("half", encoding="utf-8")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text(encoding="utf-8") == "old"
    assert beside(path) == []


def test_a_file_that_was_not_there_is_not_there_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    with atomic_path(path) as draft:
        draft.write_text("new", encoding="utf-8")
        assert not path.exists()
    assert path.read_text(encoding="utf-8") == "new"
    assert beside(path) == []


def test_a_folder_in_its_place_stays_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError, match="folder"):
        atomic_write(path, "new")
    assert beside(path) == []


@on_posix
def test_a_file_keeps_its_permissions_and_its_draft_is_nobody_elses_to_read(path: Path) -> None:
    path.chmod(0o640)
    with atomic_path(path) as draft:
        draft.write_text("new", encoding="utf-8")
        assert mode(draft) == 0o600
    assert mode(path) == 0o640


@on_posix
def test_a_new_file_has_the_permissions_that_any_new_file_has(tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    atomic_write(tmp_path / "new", "text")
    assert mode(tmp_path / "new") == mode(tmp_path / "any")


@on_posix
def test_a_link_stays_a_link_and_its_target_is_replaced(path: Path) -> None:
    link = path.with_name("link.txt")
    link.symlink_to(path)
    atomic_write(link, "new\r\n")
    assert link.is_symlink()
    assert path.read_bytes() == b"new\r\n"


@on_posix
def test_links_in_a_circle_give_way_to_the_file(tmp_path: Path) -> None:
    link, other = tmp_path / "link.txt", tmp_path / "other.txt"
    link.symlink_to(other)
    other.symlink_to(link)
    atomic_write(link, "new")
    assert link.read_text(encoding="utf-8") == "new"


@on_posix
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    atomic_write(pipe, "text")
    reader.join(600)
    assert read == [b"text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_half_of_a_character_is_no_obstacle(path: Path) -> None:
    atomic_write(path, "a\ud800")
    assert path.read_bytes() == b"a\\ud800"


@given(st.text())
def test_a_text_file_holds_no_control_characters_but_line_ends_and_tabs(text: str) -> None:
    with TemporaryDirectory() as folder:
        atomic_write(Path(folder) / "report", text)
        written = (Path(folder) / "report").read_bytes().decode()
    assert {character for character in written.replace("\r\n", "\n") if category(character) == "Cc"} <= {"\n", "\t"}


@given(st.dictionaries(st.text(), st.text()))
def test_json_that_is_written_holds_what_it_held(values: dict[str, str]) -> None:
    with TemporaryDirectory() as folder:
        atomic_write(Path(folder) / "report.json", json.dumps(values, ensure_ascii=False))
        assert json.loads((Path(folder) / "report.json").read_bytes()) == values
