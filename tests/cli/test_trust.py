"""A configuration file that is only found is used after the user has trusted its place and content; a named one always."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli import ENVIRONMENT, Shell, complete, run

from outreach_async import InvalidRequest, OutreachClient
from outreach_async.config import FoundFile, load_config
from outreach_async.sync import SyncClient


def completed(*words: str) -> list[str]:
    return [item.value for item in complete("campaigns", *words)]


ADDRESS = 'base_url = "http://127.0.0.1:9"\n'
PROGRAM = 'owner_key = { command = ["touch", "ran"] }\n'
SPACE = '[workspaces]\nacme = { id = "space_1" }\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work space").mkdir()
    monkeypatch.chdir(tmp_path / "work space")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(text: str, path: str | Path = "outreach.toml") -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    Path(path).chmod(0o600)
    return Path(path)


def is_refused() -> bool:
    """Return whether the file that is found is refused by every way in which a program uses it, with the same error."""
    errors: list[str] = []
    uses: list[Callable[[], object]] = [
        load_config,
        lambda: OutreachClient.from_config(read_only=True, base_url="http://127.0.0.1:9"),
        lambda: SyncClient.from_config(read_only=True, base_url="http://127.0.0.1:9"),
    ]
    for use in uses:
        try:
            use()
        except InvalidRequest as error:
            errors.append(str(error))
    assert errors in ([], errors[:1] * len(uses))
    return bool(errors)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (ADDRESS, "the address http://127.0.0.1:9"),
        (PROGRAM, "the program 'touch'"),
        ('[workspaces]\na = { id = "space_1", owner_key = { command = ["sh", "-c", "key_hunter2"] } }', "the program 'sh'"),
        ('[profile.p]\nbase_url = "http://u.example"', "the address http://u.example"),
        ('[profile.p.workspaces]\na = { id = "space_1", owner_key = { command = ["op"] } }', "the program 'op'"),
        (ADDRESS + PROGRAM, "the address http://127.0.0.1:9 and the program 'touch'"),
        (
            "".join(f'[profile.p{number}]\nbase_url = "http://u{number}.example/{"a" * 999}"\n' for number in range(10)),
            " and ".join([*(f"the address http://u{number}.example/{'a' * 270}..." for number in range(8)), "2 more"]),
        ),
    ],
)
def test_what_redirects_or_runs_needs_trust(shell: Shell, text: str, names: str) -> None:
    write(text)
    err = shell.refused("campaigns", "--workspace", "space_1")
    assert f"this user trusts, got one that was found in the working directory, and that names {names}; " in err
    assert "hunter2" not in err
    assert is_refused()
    assert not Path("ran").exists()


def test_a_file_without_address_and_program_is_used_as_it_is(shell: Shell) -> None:
    write(f'rate = 5\nowner_key = {{ env = "K" }}\n{SPACE}[workspaces.command]\nid = "space_2"\n')
    assert not is_refused()
    assert "names no address and no program" in shell("config", "trust").out


@pytest.mark.parametrize("number", range(3))
def test_each_remedy_works_as_it_is_printed(shell: Shell, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    write(ADDRESS + SPACE)
    words = shlex.split(shell.refused("campaigns", "--workspace", "acme").replace("(", "").replace(")", "").replace(",", " "))
    if number == 0:
        assert shell(*words[words.index("outreach-async") + 1 :][:3]).code == 0
    elif number == 1:
        monkeypatch.setenv(
            "OUTREACH_CONFIG", next(word for word in words if word.startswith("OUTREACH_CONFIG=")).split("=")[1].rstrip(";")
        )
    options = words[words.index("--config") :][:2] if number == 2 else []
    assert shell("audit", "--schema", *options).code == 0


def test_trust_ends_with_another_content_or_place(shell: Shell, folder: Path) -> None:
    path = write(ADDRESS)
    assert "trusted as it is now; it names the address" in shell("config", "trust").out
    assert not is_refused()
    assert "as trusted" in shell("config", "trust", "--show").out
    write(ADDRESS + "# changed")
    assert is_refused()
    assert "changed since" in shell("config", "trust", "--show").out
    assert shell("config", "trust", ".").code == 0
    write(ADDRESS)  # only one content is trusted
    assert is_refused()
    assert shell("config", "trust").code == 0
    other = write(ADDRESS, folder / "other" / "outreach.toml")
    os.chdir(other.parent)
    assert is_refused()
    other.unlink()
    other.symlink_to(folder / "work space" / "outreach.toml")  # relative paths in it would mean other files
    assert is_refused()
    os.chdir(folder / "work space")
    assert not is_refused()
    (folder / "link").symlink_to(folder / "work space")
    os.chdir(folder / "link")
    assert not is_refused()
    path.rename("real.toml")
    path.symlink_to("real.toml")  # the same content in the same place
    assert not is_refused()
    assert "no longer trusted" in shell("config", "trust", "--untrust").out
    assert "was not trusted" in shell("config", "trust", "--untrust").out
    assert is_refused()
    Path("outreach.toml").unlink()
    assert "cannot be read (No such file" in shell("config", "trust").err
    assert (shell("config", "trust", "--show").out, FoundFile.trusted()) == ("trusted\tcontent\n", [])


def test_a_file_that_is_gone_is_shown_as_such(shell: Shell) -> None:
    path = write(ADDRESS)
    shell("config", "trust")
    path.unlink()
    assert "outreach.toml\tNo such file or directory\n" in shell("config", "trust", "--show").out


def test_a_named_file_and_that_of_the_user_need_no_trust(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("platformdirs")  # of the extra `cli`
    path = write(ADDRESS + SPACE)
    assert load_config(path).base_url
    assert shell("config", "show", "--config", "outreach.toml").err == ""
    monkeypatch.setenv("OUTREACH_CONFIG", "outreach.toml")
    assert not is_refused()
    monkeypatch.delenv("OUTREACH_CONFIG")
    path.unlink()
    own = write(ADDRESS, folder / "config" / "outreach-async" / "outreach.toml")
    assert not is_refused()
    os.chdir(own.parent)  # the same file is found first
    assert not is_refused()


def test_a_file_that_init_has_written_is_trusted_until_it_is_edited(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTREACH_BASE_URL", "http://127.0.0.1:9")
    assert shell("config", "init").code == 0
    assert not is_refused()
    write(Path("outreach.toml").read_text(encoding="utf-8") + PROGRAM.replace("owner_key", "[profile.a]\nowner_key"))
    assert is_refused()


def test_commands_that_use_no_file_do_not_ask(shell: Shell) -> None:
    write(ADDRESS + PROGRAM + SPACE)
    allowed: list[tuple[str, ...]] = [
        ("--help",),
        ("config", "check", "--help"),
        ("--version",),
        ("fields", "--base-url", "fake:"),
    ]
    for arguments in allowed:
        assert shell(*arguments).code == 0
    shown = shell("config", "show")
    assert (shown.code, "http://127.0.0.1:9" in shown.out) == (0, True)
    assert "outreach.toml: not trusted yet; check its content, then run: outreach-async config trust '" in shown.err
    refused: tuple[tuple[str, ...], ...] = ("config", "check"), ("mcp",), ("import", "x.csv")
    for arguments in refused:
        assert "expected a file that this user trusts" in shell.refused(*arguments)
    assert shell("fields", "--config", os.devnull, "--base-url", "fake:").code == 0
    assert not Path("ran").exists()


def answer(text: str) -> tuple[int, str]:
    """Run a command on a terminal, with an answer to its question, and return its exit code and what the terminal shows."""
    screen, terminal = pty.openpty()
    os.write(screen, text.encode())
    before = sys.stdin, sys.stderr
    sys.stdin, sys.stderr = os.fdopen(terminal, closefd=False), os.fdopen(os.dup(terminal), "w")
    try:
        code = run(["audit", "--schema"])
        sys.stderr.write("END")
        sys.stderr.flush()
        shown = b""
        while not shown.endswith(b"END"):
            shown += os.read(screen, 65_536)
        return code, shown.decode().replace("\r\n", "\n")
    finally:
        sys.stdin.close()
        sys.stderr.close()
        sys.stdin, sys.stderr = before
        os.close(terminal)
        os.close(screen)


@pytest.mark.parametrize(("text", "code"), [("y\n", 0), (" YES \n", 0), ("n\n", 2), ("\n", 2), ("\x04", 2)])
def test_a_terminal_is_asked_once(text: str, code: int) -> None:
    write(ADDRESS + SPACE)
    ended, shown = answer(text)
    assert ended == code
    assert "outreach.toml names the address http://127.0.0.1:9\nTrust this file as it is now? [y/N] " in shown
    assert is_refused() is (code == 2)
    assert ("Trust this file" in answer("\x04")[1]) is (code == 2)


def without_home(patch: pytest.MonkeyPatch) -> None:
    patch.delenv("XDG_STATE_HOME")
    patch.setenv("HOME", ".")


def with_relative_state(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("XDG_STATE_HOME", ".")
    patch.setenv("HOME", ".")


def with_a_file_as_state(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("XDG_STATE_HOME", str(write("", "state").resolve()))


@pytest.mark.parametrize("break_state", [without_home, with_relative_state, with_a_file_as_state])
def test_a_user_without_a_folder_can_still_name_the_file(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, break_state: Callable[[pytest.MonkeyPatch], None]
) -> None:
    write(ADDRESS + SPACE)
    break_state(monkeypatch)
    assert is_refused()
    err = shell.refused("config", "trust")
    assert "name the file with --config or OUTREACH_CONFIG" in err
    ended, shown = answer("y\n")  # for this time
    assert (ended, "the next command asks again" in shown) == (0, True)
    assert shell("audit", "--schema", "--config", "outreach.toml").code == 0


@pytest.mark.parametrize(("given", "place"), [("", "home/.local/state"), (".", "home/.local/state"), ("/s", "s")])
def test_trust_is_in_the_folder_for_the_state_of_the_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: str, place: str
) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / given[1:]) if given.startswith("/") else given)
    FoundFile(write(ADDRESS), b"").trust()
    assert len([*(folder / place / "outreach-async" / "trusted").iterdir()]) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("entry", [False, True])
def test_trust_that_others_could_have_written_counts_for_nothing(shell: Shell, folder: Path, entry: bool) -> None:
    write(ADDRESS)
    shell("config", "trust")
    state = folder / "state" / "outreach-async" / "trusted"
    path = next(state.iterdir()) if entry else state
    assert not path.stat().st_mode & 0o077
    path.chmod(0o777)
    assert is_refused()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_trust_in_a_folder_that_others_can_write_is_an_error_whose_remedy_works(shell: Shell, folder: Path) -> None:
    write(ADDRESS)
    state = folder / "state" / "outreach-async" / "trusted"
    state.mkdir(parents=True)
    state.chmod(0o775)  # as a restored backup may have it
    err = shell.refused("config", "trust")
    assert f"{state}: expected a folder that only this user can write, but others can write it" in err
    assert (is_refused(), list(state.iterdir())) == (True, [])
    subprocess.run(err.partition("run: ")[2], shell=True, check=True)  # noqa: S602 - as a person pastes it
    assert shell("config", "trust").code == 0
    assert not is_refused()


def test_a_pipe_that_is_found_is_not_waited_for(shell: Shell) -> None:
    os.mkfifo("outreach.toml")
    assert "outreach.toml: the configuration file cannot be read (it is not a regular file)" in shell.refused("campaigns")
    assert completed("--workspace", "") == []
    Path("outreach.toml").unlink()
    write(ADDRESS + PROGRAM + SPACE)
    assert completed("--workspace", "") == ["acme", "all"]
    assert not Path("ran").exists()


def test_what_is_trusted_is_what_was_read() -> None:
    path = write(ADDRESS)
    found = FoundFile(path, path.read_bytes())
    write(PROGRAM)  # between the question and the answer
    found.trust()
    assert is_refused()
    write(ADDRESS)
    assert not is_refused()
