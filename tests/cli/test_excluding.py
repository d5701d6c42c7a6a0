"""The lists of people who must not be written to: `import --exclude`, and `exclude` of the configuration file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli import Served, Shell
from support.parts import KEY, SPACE, PlainService
from support.parts import served as served_parts
from support.results import read_results

PEOPLE = "email,city\nann@x.example,Lyon\nBO@acme.example,Bern\ncy@y.example,Oslo\nann@x.example,Nice\n,Rome\n"
STATUSES = ["excluded", "excluded", "added", "excluded", "rejected"]
REASONS = ["the list blocked.txt has the address", "the list domains.csv has the domain acme.example"]


@pytest.fixture
def lists(served: Served) -> tuple[str, ...]:
    (served.folder / "blocked.txt").write_text("# never\nAnn <ANN@x.example>\n", encoding="utf-8")
    (served.folder / "domains.csv").write_text("Client,Domain\nAcme,acme.example\n", encoding="utf-8")
    return "--exclude", str(served.folder / "blocked.txt"), "--exclude", str(served.folder / "domains.csv")


@pytest.mark.parametrize(
    "options",
    [
        (),
        *(
            pytest.param(options, marks=pytest.mark.thorough)
            for options in [
                ("--repeats", "error"),
                ("--journal", "{}/run.db"),
                ("--ledger", "{}/a.ledger", "--duplicates", "overwrite"),
                ("--ledger", "{}/a.ledger", "--duplicates", "overwrite", "--repeats", "error"),
            ]
        ),
    ],
)
def test_listed_rows_are_excluded_in_the_run_as_the_dry_run_has_announced(
    served: Served, lists: tuple[str, ...], options: tuple[str, ...]
) -> None:
    people, out, rejects = served.save(PEOPLE), served.folder / "out.jsonl", served.folder / "rejects.csv"
    own = (*served.options, *lists, *(option.format(served.folder) for option in options), "--rejects", str(rejects))
    code, dry = served.json("import", people, *own, "--dry-run")
    assert (code, dry["outcomes"]["excluded"], dry["outcomes"]["rejected"], len(rejects.read_text().splitlines())) == (3, 3, 1, 2)
    assert dry.get("ledger", {"excluded": 3})["excluded"] == 3
    assert not served.service.contacts("space_1")
    done, report = served.json("import", people, *own, "--results", str(out))
    assert (done, report["outcomes"]["excluded"], report["exclusions"]) == (3, 3, dry["exclusions"])
    assert {group["reason"]: group["count"] for group in dry["exclusions"]} == {
        "the list blocked.txt": 2,
        "the list domains.csv": 1,
    }
    rows = read_results(out)
    assert [row["status"] for row in rows] == STATUSES
    assert [row["error"] for row in rows[:2]] == REASONS
    assert len(rejects.read_text().splitlines()) == 2  # the header, and the row without an e-mail
    assert [contact["email"] for contact in served.service.contacts("space_1")] == ["cy@y.example"]


def test_a_person_reads_who_is_excluded_and_why(served: Served, lists: tuple[str, ...]) -> None:
    dry, done = (served("import", served.save(PEOPLE), *served.options, *lists, *more) for more in (("--dry-run",), ()))
    assert "people who must not be written to: 3 of 5 rows are not sent; " in dry.out
    assert "excluded: 2 rows: the list blocked.txt has the address\n" in dry.out
    assert "excluded rows: 3; nothing is sent to these people" in done.out


@pytest.mark.parametrize("content", ["ann@x.example\nbob\n", "# nobody\n", None])
def test_an_import_with_a_list_that_cannot_be_used_sends_nothing(served: Served, content: str | None) -> None:
    path = served.folder / "list.txt"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    done = served("import", served.save(PEOPLE), *served.options, "--exclude", str(path))
    assert (done.code, str(path) in done.err) == (2, True)
    assert not served.service.contacts("space_1")


def test_the_lists_of_the_configuration_file_apply_to_every_import(served: Served, lists: tuple[str, ...]) -> None:
    folder = served.folder
    (file := folder / "outreach.toml").write_text(
        'exclude = "blocked.txt"\n[profile.all]\nexclude = ["domains.csv"]\n[profile.none]\nexclude = []\n'
    )
    file.chmod(0o600)
    people = served.save(PEOPLE)
    for more, excluded in ((), 2), (lists[2:], 3), (("--profile", "all"), 3), (("--profile", "none"), 2):
        own = ("--config", str(file), *more, "--dry-run")
        assert served.json("import", people, *served.options, *own)[1]["outcomes"]["excluded"] == excluded
    shown: Any = served.json("config", "show", "--config", str(file), "--profile", "all")[1]["values"]["exclude"]
    assert shown == {"value": f"{folder / 'blocked.txt'}, {folder / 'domains.csv'}", "from": f"profile all in {file}"}
    file.write_text("exclude = 3\n")
    wrong = served("import", people, *served.options, "--config", str(file))
    message = 'exclude: expected a list of paths, got int; write exclude = ["blocked.csv"]'
    assert (wrong.code, message in wrong.err) == (2, True)


@pytest.mark.usefixtures("lists")
def test_a_contact_on_a_list_of_the_configuration_file_is_not_created(served: Served) -> None:
    (file := served.folder / "outreach.toml").write_text('exclude = ["domains.csv", "blocked.txt"]\n')
    file.chmod(0o600)
    own = (*served.options, "--config", str(file))
    refused = served("contacts", "create", "--email", "ann@X.example", *own)
    assert (refused.code, refused.out) == (3, f"excluded: {REASONS[0]}\n")
    code, value = served.json("contacts", "create", "--email", "ann@x.example", *own)
    assert (code, value["status"], value["error"]) == (3, "excluded", REASONS[0])
    assert not served.service.contacts("space_1")
    assert served("contacts", "create", "--email", "bo@x.example", *own).code == 0


@pytest.mark.thorough
@pytest.mark.covers
def test_processes_and_a_cluster_exclude_the_people_of_the_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    (tmp_path / "people.csv").write_text(
        "email,Note\n" + "".join(f"u{at}@x.example,{at}\n" for at in range(9)) + "U3@x.example,9\n"
    )
    (tmp_path / "blocked.txt").write_text("u3@x.example\nu5@x.example\n")
    for name, options in ("processes", ("--processes", "2")), ("dask", ("--dask", "local")):
        with served_parts(PlainService()) as connection:
            place = ["--base-url", connection.base_url, "--workspace", SPACE, "--journal", (tmp_path / name).as_uri()]
            results = tmp_path / f"{name}.jsonl"
            own = ("--exclude", str(tmp_path / "blocked.txt"), "--map", "Note=city", "--json")
            arguments = ("import", str(tmp_path / "people.csv"), *place, *options, *own)
            assert json.loads(shell(*arguments, "--dry-run").out)["outcomes"]["excluded"] == 3
            done = shell(*arguments, "--results", str(results))
        report = json.loads(done.out)
        assert (done.code, report["outcomes"]["added"], report["outcomes"]["excluded"]) == (0, 7, 3)
        assert {row["error"] for row in read_results(results) if row["status"] == "excluded"} == {REASONS[0]}
