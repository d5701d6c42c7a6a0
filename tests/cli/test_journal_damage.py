"""Imports whose journal is damaged, missing, finished with other rows, or started with another mapping."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from support.cli import COMMAND, Served, Shell, connection_options, on_terminal, save_contacts, serve_in_thread, small_service

from outreach_async import Store
from outreach_async.fake import FakeService
from outreach_async.fake.faults import ok, status

TOWNS = "email,Town\n" + "".join(f"p{at}@a.example,x\n" for at in range(6))
TOWN = ("--map", "Town=city")


def posts(service: FakeService) -> int:
    return sum(request.operation == "create_contact" for request in service.requests)


def suspend(service: FakeService, done: int = 2) -> None:
    service.faults.script("create_contact", *[ok] * done, status(429, retry_after=7200))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.mark.thorough
def test_a_damaged_journal_is_continued_with_the_flag_the_error_names(served: Served, journal: Path) -> None:
    path = served.save("email\n" + "".join(f"p{at}@a.example\n" for at in range(9)))
    suspend(served.service)
    assert served("import", path, "--journal", str(journal), "--concurrency", "1", *served.options).code == 75
    journal.write_bytes(journal.read_bytes()[:6000])
    refused = served("import", path, "--journal", str(journal), "--resume", *served.options)
    assert (refused.code, "--resume --earlier unknown" in refused.err) == (3, True)
    code, value = served.json("import", path, "--journal", str(journal), "--resume", "--earlier", "unknown", *served.options)
    assert (code, value["rows"], value["outcomes"]["skipped"], value["outcomes"]["added"]) == (0, 9, 2, 7)
    assert value["uncertain"] == 2
    assert (served.folder / "run.db.damaged").stat().st_size == 6000


@pytest.mark.parametrize("content", [None, b""], ids=["lost", "empty"])
def test_a_missing_or_empty_journal_is_continued(served: Served, journal: Path, content: bytes | None) -> None:
    path = served.save("email\na@a.example\n")
    assert served("import", path, *served.options).code == 0
    if content is not None:
        journal.write_bytes(content)
        assert served("import", path, "--journal", str(journal), "--resume", *served.options).code == 2
    _, value = served.json("import", path, "--journal", str(journal), "--earlier", "unknown", *served.options)
    assert (value["outcomes"]["skipped"], value["uncertain"]) == (1, 1)


@pytest.mark.thorough
def test_stdin_is_read_again_when_its_journal_is_damaged(served: Served, journal: Path) -> None:
    people = "email\na@a.example\nb@a.example\nc@a.example\n"
    server_options = ("--journal", str(journal), "--concurrency", "1", *served.options)
    suspend(served.service)
    assert served.piped(people, "import", "-", *server_options).code == 75
    content = bytearray(journal.read_bytes())
    place = content.index(b"b@a.example")
    content[place : place + 1] = b"x"
    journal.write_bytes(content)
    refused = served.piped("", "import", "-", *server_options, "--resume")
    assert (refused.code, "--earlier unknown" in refused.err) == (3, True)
    done = served.piped(people, "import", "-", *server_options, "--earlier", "unknown")
    assert (done.code, Store(journal).report().rows, Store(journal).report().uncertain) == (0, 3, 2)
    assert {contact["email"] for contact in served.service.contacts("space_1")} == {f"{name}@a.example" for name in "abc"}


def test_continuing_a_finished_journal_sends_nothing(served: Served, journal: Path) -> None:
    path = served.save("email\na@a.example\n")
    assert served("import", path, "--journal", str(journal), *served.options).code == 0
    second = served("import", path, "--journal", str(journal), "--earlier", "unknown", *served.options)
    assert (second.code, posts(served.service)) == (0, 1)


def test_a_run_of_a_file_is_not_resumed_from_stdin_nor_the_reverse(served: Served, journal: Path) -> None:
    people = "email\na@a.example\n"
    path, options = served.save(people), ("--journal", str(journal), "--resume", *served.options)
    assert served("import", path, *options).code == 0
    refused = served.piped(people, "import", "-", *options)
    assert (refused.code, "FILE was a file, and is now standard input or a pipe;" in refused.err) == (2, True)
    journal.unlink()
    assert served.piped(people, "import", "-", *options).code == 0
    assert "FILE was standard input or a pipe, and is now a file;" in served.refused("import", path, *options)
    assert posts(served.service) == 2


def test_a_run_is_not_resumed_at_another_address(shell: Shell, tmp_path: Path, journal: Path) -> None:
    path, other = save_contacts(tmp_path, "email\na@a.example\nb@a.example\n"), small_service()
    with serve_in_thread(service := small_service()) as url, serve_in_thread(other) as other_url:
        suspend(service, 1)
        assert shell("import", path, "--journal", str(journal), "--concurrency", "1", *connection_options(url)).code == 75
        refused = shell("import", path, "--journal", str(journal), "--resume", *connection_options(other_url))
    assert (refused.code, f"--base-url was '{url}' and is now '{other_url}';" in refused.err) == (2, True)
    assert posts(other) == 0


@pytest.mark.parametrize("done", [2, 6], ids=["suspended", "finished"])
@pytest.mark.parametrize(
    ("maps", "code"),
    [(TOWN, 0), ((), 0), (("--map", "Town=region"), 2), (("--map", "Plan=city"), 2), (("--map", "Town=ignore"), 2)],
    ids=["the same", "none", "another", "another column", "left out"],
)
def test_a_spooled_run_is_resumed_only_with_its_mapping(
    served: Served, journal: Path, done: int, maps: tuple[str, ...], code: int
) -> None:
    server_options = ("--journal", str(journal), "--concurrency", "1", *served.options)
    if done < 6:
        suspend(served.service, done)
    assert served.piped(TOWNS, "import", "-", *TOWN, *server_options).code == (75 if done < 6 else 0)
    before = posts(served.service)
    resumed = served.piped("", "import", "-", *maps, *server_options, "--resume")
    assert (resumed.code, "the input changed: the field of column" in resumed.err) == (code, code == 2)
    assert f"{journal} contains the 6 rows of this run, which resumes with them; standard input must be" in resumed.err
    assert posts(served.service) == (before if code else before + 6 - done)
    if not code:
        assert Store(journal).report().rows == 6


@pytest.mark.parametrize("done", [2, 6], ids=["suspended", "finished"])
def test_a_spooled_run_takes_only_its_own_rows_from_stdin(served: Served, journal: Path, done: int) -> None:
    options = (*TOWN, "--journal", str(journal), "--concurrency", "1", *served.options)
    if done < 6:
        suspend(served.service, done)
    assert served.piped(TOWNS, "import", "-", *options).code == (75 if done < 6 else 0)
    refused = served.piped(f"{TOWNS}q1@a.example,Rome\n", "import", "-", *options, "--resume")
    assert refused.code == 2
    said, _, error = refused.err.partition("FILE: the input changed: ")
    assert f"{journal} contains the 6 rows of this run" in said
    assert "got other rows; run the import with --resume and an empty standard input (</dev/null), or pass" in error
    assert "another journal, with --earlier unknown if some of the rows may have been sent" in error
    assert f"{done} of 6 rows" in refused.out
    assert ("Some rows remain" in refused.out) == (done < 6)
    assert posts(served.service) == done + (done < 6)
    assert served.piped(TOWNS, "import", "-", *options, "--resume").code == 0
    assert (Store(journal).report().rows, len(served.service.contacts("space_1"))) == (6, 6)


@pytest.mark.thorough
def test_a_spooled_run_resumes_on_a_terminal_or_with_standard_input_closed(shell: Shell, journal: Path) -> None:
    service = small_service()
    with serve_in_thread(service) as url:
        options = (*TOWN, "--journal", str(journal), "--concurrency", "1", *connection_options(url))
        for done in (2, 1):
            suspend(service, done)
            assert shell.piped("" if journal.exists() else TOWNS, "import", "-", *options, "--resume").code == 75
        assert on_terminal("import", "-", *options, "--resume").code == 0
        closed = subprocess.run(
            ["/bin/sh", "-c", f"exec {shlex.join([*COMMAND, 'import', '-', *options, '--resume'])} <&-"], check=False
        )
    assert closed.returncode == 0
    assert (Store(journal).report().rows, len(service.contacts("space_1"))) == (6, 6)


def test_extra_columns_in_a_saved_mapping_do_not_change_the_run(served: Served, tmp_path: Path, journal: Path) -> None:
    mapping = tmp_path / "map.toml"
    mapping.write_text('[columns]\n"Town" = "city"\n"Elsewhere" = "region"\n', encoding="utf-8")
    server_options = ("--mapping", str(mapping), "--journal", str(journal), "--concurrency", "1", *served.options)
    suspend(served.service)
    assert served.piped(TOWNS, "import", "-", *server_options).code == 75
    assert served.piped("", "import", "-", *server_options, "--resume").code == 0
    assert len(served.service.contacts("space_1")) == 6
