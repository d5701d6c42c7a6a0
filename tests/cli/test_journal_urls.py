"""Imports whose journal is at a URL: in a folder, and on S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import Shell, save_contacts
from support.s3 import SECRET, environment, serve_s3

from outreach_async.fake import FakeService
from outreach_async.fake.faults import commit_then, ok, reset, status


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield f"file://{tmp_path}/journal"
        return
    with serve_s3() as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        yield "s3://journals/contacts"


def test_a_suspended_import_is_reported_and_resumed_from_its_url(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path, url: str
) -> None:
    path = save_contacts(tmp_path, "email\n" + "".join(f"p{at}@a.example\n" for at in range(20)))
    service.faults.script("create_contact", ok, commit_then(reset()), ok, status(429, retry_after=7200))
    first = shell("import", path, *server_options, "--journal", url, "--concurrency", "1")
    assert first.code == 75
    assert f"Resume with the same command and --journal {url} --resume." in first.out
    code, value = shell.json("report", url)
    assert (code, value["state"], value["rows"], value["source"]) == (75, "suspended", 2, path)
    again = shell("import", path, *server_options, "--journal", url)
    assert (again.code, f"--journal {url}: the journal exists; resume its run with --resume" in again.err) == (2, True)
    rejects = str(tmp_path / "rejects.csv")
    code, value = shell.json("import", path, *server_options, "--journal", url, "--resume", "--rejects", rejects)
    assert (code, value["rows"], value["uncertain"]) == (0, 20, 1)
    assert len(service.contacts("space_1")) == 20
    shown = shell("report", url, "--uncertain")
    assert shown.code == 0
    assert "finished: 20 rows" in shown.out
    assert SECRET not in first.out + first.err + shown.out + shown.err


def test_a_damaged_journal_at_a_url_is_given_up_with_earlier_unknown(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path, url = save_contacts(tmp_path, "email\na@a.example\n"), f"file://{tmp_path}/journal"
    assert shell("import", path, *server_options, "--journal", url).code == 0
    (tmp_path / "journal" / "0000-0000000001").unlink()
    refused = shell("import", path, *server_options, "--journal", url, "--resume")
    assert refused.code != 0
    assert (
        "object 0000-0000000001 is missing; restore the object, or run the import with --resume --earlier unknown" in refused.err
    )
    code, value = shell.json("import", path, *server_options, "--journal", url, "--resume", "--earlier", "unknown")
    assert (code, value["outcomes"]["skipped"], value["uncertain"]) == (0, 1, 1)


def test_urls_that_cannot_be_used_are_refused_with_the_option(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path = save_contacts(tmp_path, "email\na@a.example\n")
    for url in ("s3://id:s3cret@bucket/run", "ftp://bucket/run", "s3://bucket"):
        refused = shell("import", path, *server_options, "--journal", url)
        assert refused.code == 2
        assert "--journal: expected" in refused.err
        assert "s3cret" not in refused.err
    missing = shell("report", f"file://{tmp_path}/nowhere")
    assert "JOURNAL: file://" in missing.err
    assert "does not exist; pass the URL of a journal" in missing.err
    assert "JOURNAL: expected" in shell("report", "ftp://bucket/run").err
