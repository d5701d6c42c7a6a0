"""Imports whose journal is a file, or at a URL: in a folder, and on S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import Served, Shell, Watched, connection_options, save_contacts, serve_in_thread
from support.s3 import SECRET, environment, serve_s3

from outreach_async.fake import FakeService
from outreach_async.fake.faults import commit_then, ok, reset, status


@pytest.fixture(params=["file", "folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param != "s3":
        yield f"file://{tmp_path}/journal" if request.param == "folder" else str(tmp_path / "run.db")
        return
    with serve_s3() as port:
        for name, value in environment(port).items():
            monkeypatch.setenv(name, value)
        yield "s3://journals/contacts"


@pytest.mark.covers
@pytest.mark.thorough
def test_a_suspended_import_is_reported_and_resumed(served: Served, url: str) -> None:
    path = served.save("email\n" + "".join(f"p{at}@a.example\n" for at in range(20)))
    served.service.faults.script("create_contact", ok, commit_then(reset()), ok, status(429, retry_after=7200))
    first = served("import", path, *served.options, "--journal", url, "--concurrency", "1")
    assert (first.code, "2 of 20 rows" in first.out, "asked to wait 7200 s" in first.err) == (75, True, True)
    assert f"Run the same command again: it continues the run in {url}." in first.out
    code, value = served.json("report", url)
    assert (code, value["state"], value["rows"], value["source"]) == (75, "suspended", 2, path)
    rejects = str(served.folder / "rejects.csv")
    code, value = served.json("import", path, *served.options, "--journal", url, "--rejects", rejects)
    assert (code, value["rows"], value["uncertain"]) == (0, 20, 1)
    assert f"--journal {url}: its run is finished; add --resume" in served.refused(
        "import", path, *served.options, "--journal", url
    )
    assert len(served.service.contacts("space_1")) == 20
    shown = served("report", url, "--uncertain")
    assert shown.code == 0
    assert "finished: 20 rows" in shown.out
    assert SECRET not in first.out + first.err + shown.out + shown.err


@pytest.mark.thorough
def test_a_damaged_journal_at_a_url_is_given_up_with_earlier_unknown(served: Served) -> None:
    path, url = served.save("email\na@a.example\n"), f"file://{served.folder}/journal"
    assert served("import", path, *served.options, "--journal", url).code == 0
    (served.folder / "journal" / "0000-0000000001").unlink()
    refused = served("import", path, *served.options, "--journal", url, "--resume")
    assert refused.code != 0
    assert (
        "object 0000-0000000001 is missing; restore the object, or run the import with --resume --earlier unknown" in refused.err
    )
    code, value = served.json("import", path, *served.options, "--journal", url, "--resume", "--earlier", "unknown")
    assert (code, value["outcomes"]["skipped"], value["uncertain"]) == (0, 1, 1)


@pytest.mark.parametrize("rejected", [False, True])
def test_an_import_whose_journal_is_renamed_prints_its_numbers(
    shell: Shell, service: FakeService, tmp_path: Path, rejected: bool
) -> None:
    path = save_contacts(tmp_path, "email\n" + "".join(f"p{at}@a.example\n" for at in range(20)))
    rejects, folder = tmp_path / "rejects.csv", tmp_path / "journal"
    partial = tmp_path / "rejects.partial.csv"
    with serve_in_thread(Watched(service, 5, lambda: folder.rename(tmp_path / "renamed"))) as base_url:
        options = ("--journal", f"file://{folder}", *connection_options(base_url), *(("--rejects", str(rejects)) * rejected))
        ended = shell("import", path, *options)
    assert (ended.code, folder.exists(), rejects.exists(), partial.exists()) == (3, False, False, rejected)
    assert "the folder was removed, renamed or unmounted during the run; fix the cause" in ended.err
    assert "rows in" in ended.out
    assert "Some rows remain" not in ended.out


def test_urls_that_cannot_be_used_are_refused_with_the_option(served: Served) -> None:
    path = served.save("email\na@a.example\n")
    for url in ("s3://id:s3cret@bucket/run", "ftp://bucket/run", "s3://bucket"):
        err = served.refused("import", path, *served.options, "--journal", url)
        assert "--journal: expected" in err
        assert "s3cret" not in err
    missing = served("report", f"file://{served.folder}/nowhere")
    assert "JOURNAL: file://" in missing.err
    assert "does not exist; pass the URL of a journal" in missing.err
    assert "JOURNAL: expected" in served("report", "ftp://bucket/run").err


def test_report_names_its_argument_whatever_is_there(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(int(served.options[1].rpartition(":")[2])).items():  # not an S3 server: it knows no bucket
        monkeypatch.setenv(name, value)
    assert "outreach-async: JOURNAL s3://bucket/x: the objects cannot be listed" in served("report", "s3://bucket/x").err
    (served.folder / "history.db").write_text("an audit history", encoding="utf-8")
    assert f"JOURNAL: {served.folder}/history.db is not a journal; pass the path" in served("report", str(served.folder)).err


@pytest.fixture
def parts(url: str, shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path) -> str:
    """Create the journals of two parts. The second part is unfinished and has an uncertain row."""
    for number, scripted in enumerate([[], [commit_then(reset()), ok, status(429, retry_after=7200)]]):
        path = tmp_path / f"{number}.csv"
        path.write_text("email\n" + "".join(f"p{number}{at}@a.example\n" for at in range(4)), encoding="utf-8")
        service.faults.script("create_contact", *scripted)
        journal = f"{url}/parts/0000{number}"
        assert shell("import", str(path), *server_options, "--journal", journal, "--concurrency", "1").code == 75 * number
    return f"{url}/parts"


@pytest.mark.covers
@pytest.mark.thorough
@pytest.mark.parametrize("url", ["folder", "s3"], indirect=True)
def test_a_report_of_a_folder_adds_up_its_parts(served: Served, parts: str) -> None:
    code, value = served.json("report", parts)
    assert (code, value["state"], value["rows"], value["uncertain"]) == (75, "suspended", 5, 1)
    assert (value["parts"], value["source"]) == ({"00000": "finished", "00001": "suspended"}, None)
    shown = served("report", f"{parts}/", "--uncertain").out
    assert "started parts: 1 finished, 1 suspended" in shown
    assert "suspended: 5 rows in" in shown
    assert "00001" in shown
    err = served.refused("report", parts, "--rejects", str(served.folder / "rejects.csv"))
    assert f"--rejects: {parts}/00000 is not a part of an import; pass this location instead of the folder" in err
    assert served("import", str(served.folder / "1.csv"), *served.options, "--journal", f"{parts}/00001", "--resume").code == 0
    code, value = served.json("report", parts)
    assert (code, value["state"], value["rows"], sum(value["outcomes"].values())) == (0, "finished", 8, 8)
    assert len(served.service.contacts("space_1")) == 8
