"""Imports of files whose rows name their campaign, with the command and a served service."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.cli import Served, connection_options, save_contacts, serve_in_thread, start_command, wait_for_end

from outreach_async import Request, Target
from outreach_async._plumbing import Targets
from outreach_async.fake import FakeService
from outreach_async.fake.faults import Exchange
from outreach_async.importer import CheckPolicy, ImportJob, MappedFile, map_columns, open_file
from outreach_async.store import Store

PEOPLE = (
    "E-mail,City,Campaign\nann@x.example,Lyon,Spring\nbo@x.example,Bern,camp_2\ncy@x.example,Rome,\nANN@x.example,Oslo,Autumn\n"
)
BAD = "email,campaign name\nann@x.example,Spring\nbo@x.example,Sprnig\ncy@x.example,camp_9\n"
OVERWRITE = ("--duplicates", "overwrite")
ENROLLED = {"ann@x.example": {"camp_1", "camp_2"}, "bo@x.example": {"camp_2"}, "cy@x.example": set[str]()}


@pytest.fixture(autouse=True)
def _autumn(service: FakeService) -> None:
    service.add_campaign("space_1", id="camp_2", name="Autumn")


class Killing:
    """A service that kills the process that sends it requests, after a number of them."""

    process: subprocess.Popen[str]

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.remaining = 0

    def exchange(self, request: Request, /) -> Exchange:
        self.remaining -= 1
        if self.remaining == 0:
            self.process.kill()
        return self._service.exchange(request)


def enrolled(service: FakeService) -> dict[str, set[str]]:
    return {contact["email"].lower(): set(contact["campaigns"]) for contact in service.contacts("space_1")}


def as_csv(path: Path) -> Path:
    return Path(save_contacts(path.parent, PEOPLE))


def as_json_lines(path: Path) -> Path:
    rows, path = csv.DictReader(PEOPLE.splitlines()), path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps({name: value for name, value in row.items() if value}) + "\n" for row in rows))
    return path


def as_parquet(path: Path) -> Path:
    parquet.write_table(pa.Table.from_pylist([*csv.DictReader(PEOPLE.splitlines())]), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


@pytest.mark.parametrize(
    ("write", "record"),
    [
        (as_csv, ()),
        (as_csv, ("--ledger", "people.ledger")),
        (as_json_lines, ("--journal", "run.db")),
        (as_parquet, ("--ledger", "people.ledger")),
    ],
)
def test_a_column_of_campaigns_is_recognised_by_its_values(
    served: Served, write: Callable[[Path], Path], record: tuple[str, ...]
) -> None:
    place = tuple(str(served.folder / each) if "." in each else each for each in record)
    results = served.folder / "results.jsonl"
    options = (*served.options, *OVERWRITE, *place, "--results", str(results))
    done = served("import", str(write(served.folder / "people")), *options)
    assert (done.code, done.err) == (0, "")
    assert "Campaign\tcampaign\tevery value is known" in done.out
    assert enrolled(served.service) == ENROLLED
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(row["workspace"], row["campaign"]) for row in rows] == [
        ("space_1", "camp_1"),
        ("space_1", "camp_2"),
        ("space_1", None),
        ("space_1", "camp_2"),
    ]


@pytest.mark.parametrize("header", ["Campaign", "campaign name", "CAMPAIGN ID", "Kampagne", "Workspace"])
def test_a_column_whose_values_are_unknown_is_never_ignored(header: str, served: Served) -> None:
    people = served.save(BAD.replace("campaign name", header))
    done = served("import", people, *served.options, "--ignore-unknown")
    code = "workspace" if header == "Workspace" else "campaign"
    assert done.code == 2
    assert "1 ambiguous column; pass these options:" in done.err
    assert f"{header}={code}" in done.err
    assert not served.service.contacts("space_1")


def test_a_column_with_an_unknown_name_says_which(served: Served) -> None:
    people = served.save(BAD.replace("campaign name", "Campaign"))
    reason = "line 3: campaign: expected the name of a campaign in space_1, got 'Sprnig'; such rows are rejected"
    assert f"  --map Campaign=campaign  # ambiguous; {reason}; or ignore\n" in served.refused("import", people, *served.options)
    checked = served("import", people, *served.options, "--map", "Campaign=campaign", "--dry-run")
    assert "2 of 3 rows can be sent" in checked.out


@pytest.mark.parametrize("campaign", ["Autumn", " camp_2 "])
def test_a_campaign_is_an_id_or_a_name(campaign: str, served: Served) -> None:
    options = (*served.options, "--campaign", campaign)
    people, journal = served.save("email\nann@x.example\n"), str(served.folder / "run.db")
    assert served("import", people, *options, "--dry-run").code == 0
    assert served("import", people, *options, "--journal", journal).code == 0
    assert enrolled(served.service) == {"ann@x.example": {"camp_2"}}
    for same in "camp_2", "Autumn":
        assert served("import", people, *served.options, "--campaign", same, "--journal", journal, "--resume").code == 0
        ledger = served("import", people, *served.options, "--campaign", same, "--ledger", str(served.folder / "l"), *OVERWRITE)
        assert ledger.out.splitlines()[-1] == f"ledger: 1 {'new' if same == 'camp_2' else 'unchanged'}"


@pytest.mark.thorough
def test_a_resumed_import_knows_which_campaign_its_name_meant(served: Served) -> None:
    people, journal = served.save("email\nann@x.example\nbo@x.example\n"), str(served.folder / "run.db")
    options = (*served.options, "--campaign", "Autumn", "--journal", journal)
    assert served("import", people, *options).code == 0
    served.service.add_campaign("space_1", id="camp_3", name="Autumn")
    assert served("import", people, *options, "--resume").code == 0


@pytest.mark.parametrize(
    ("campaign", "message"),
    [
        ("Autum", "expected the name of a campaign in space_1, got 'Autum'; did you mean 'Autumn'?"),
        ("Twin", "expected one campaign named 'Twin' in space_1, got 2 with this name (camp_3, camp_4); use an id"),
        (" ", "expected a string starting with 'camp_', got a blank string; pass the id or the name of a campaign, or omit"),
        ("space_1", "expected a string starting with 'camp_', got what looks like a workspace id (space_...); pass the id or"),
    ],
)
def test_a_campaign_that_is_not_known_is_refused_before_anything_is_sent(campaign: str, message: str, served: Served) -> None:
    for id_ in "camp_3", "camp_4":
        served.service.add_campaign("space_1", id=id_, name="Twin")
    for more in ((), ("--dry-run",)):
        error = served.refused("import", served.save("email\nann@x.example\n"), *served.options, "--campaign", campaign, *more)
        assert error.startswith(f"outreach-async: --campaign: {message}")
    assert not served.service.contacts("space_1")


def test_two_columns_of_campaigns_are_not_recognised(served: Served) -> None:
    people = served.save("email,Campaign,Campaign ID\nann@x.example,Spring,camp_1\n")
    done = served("import", people, *served.options)
    assert "2 ambiguous columns; pass these options:\n  --map Campaign=campaign  # ambiguous; such as 'Spring'" in done.err
    chosen = served("import", people, *served.options, "--map", "Campaign ID=campaign", "--map", "Campaign=ignore")
    assert (chosen.code, chosen.err) == (0, "")


def test_a_column_with_very_many_values_is_not_recognised(served: Served) -> None:
    rows = "".join(f"user{number}@x.example,camp_{number}\n" for number in range(10_001))
    done = served("import", served.save(f"email,Campaign\n{rows}"), *served.options, "--dry-run")
    assert "--map Campaign=campaign  # ambiguous" in done.err


@pytest.mark.thorough
def test_an_unknown_name_is_a_finding_and_its_rows_are_rejected(served: Served) -> None:
    people, rejects, results = served.save(BAD), served.folder / "rejects.csv", served.folder / "results.csv"
    mapping = ("--map", "campaign name=campaign")
    checked = served("import", people, *served.options, *mapping, "--dry-run", "--ledger", str(served.folder / "l"), *OVERWRITE)
    reason = "campaign: expected the name of a campaign in space_1, got 'Sprnig'; did you mean 'Spring'?"
    assert f"\nline 3: bo@x.example: rejected: {reason}\n" in checked.out
    assert "ledger: 2 new" in checked.out
    done = served("import", people, *served.options, *mapping, "--rejects", str(rejects), "--results", str(results))
    assert done.code == 3
    assert "line 4: cy@x.example: rejected: create_contact: the service answered 404: no campaign has this id" in done.out
    assert enrolled(served.service) == {"ann@x.example": {"camp_1"}}
    assert [(row["campaign name"], row["_field"]) for row in csv.DictReader(rejects.read_text().splitlines())] == [
        ("Sprnig", "campaign"),
        ("camp_9", "upload_options.campaign"),
    ]
    assert [row["campaign"] for row in csv.DictReader(results.read_text().splitlines())] == ["camp_1", "", "camp_9"]
    rejects.write_text(rejects.read_text().replace("Sprnig", "Autumn").replace("camp_9", "Spring"))
    assert served("import", str(rejects), *served.options).code == 0
    assert enrolled(served.service) == {"ann@x.example": {"camp_1"}, "bo@x.example": {"camp_2"}, "cy@x.example": {"camp_1"}}


def test_a_row_that_was_not_checked_keeps_its_names() -> None:
    columns = map_columns(["email", "Campaign"], {"Campaign": "campaign"})
    file = open_file(io.BytesIO(b"email,Campaign\na@x.example,Spring\n"), format="csv")
    unlisted: Any = Targets(Target("space_1"), lambda _workspace: pytest.fail("listed"))
    assert [row["campaign"] for row in MappedFile(file, columns, CheckPolicy.of(), unlisted).rows()] == ["Spring"]


async def test_a_row_whose_cells_are_sent_as_they_are_has_ids_too() -> None:
    file = open_file(io.BytesIO(b"email,Workspace,City\na@a.example,acme,NULL\n"), format="csv")
    job = ImportJob(file=file, overrides={"Workspace": "workspace"}, checks=CheckPolicy.of(["cells=off"]))
    (row,) = (await job.map(targets=Targets(workspaces={"acme": "space_1"}))).rows()
    assert (row["workspace"], row["city"]) == ("space_1", "NULL")


def test_json_output_names_the_target_of_a_failed_row(served: Served) -> None:
    code, found = served.json("import", served.save(BAD), *served.options, "--map", "campaign name=campaign")
    assert code == 3
    examples = [example for group in found["failures"] for example in group["examples"]]
    assert [(row["workspace"], row["campaign"]) for row in examples] == [(None, None), ("space_1", "camp_9")]


def test_names_need_a_service_and_ids_do_not(served: Served) -> None:
    people = served.save(BAD)
    done = served("import", people, "--map", "campaign name=campaign", "--dry-run")
    assert "the names of campaigns are unknown here, got 'Spring'; use an id" in done.out
    assert "1 of 3 rows can be sent" in done.out


@pytest.mark.thorough
def test_repeats_with_another_campaign_are_sent(served: Served) -> None:
    rows = "email,Campaign\nann@x.example,Spring\nann@x.example,camp_1\nann@x.example,Autumn\n"
    people, journal = served.save(rows), str(served.folder / "run.db")
    for repeats, sent in ("first", 2), ("error", 2), ("serial", 3):
        checked = served("import", people, *served.options, "--repeats", repeats, "--journal", journal, "--dry-run")
        assert f"{sent} of 3 rows can be sent" in checked.out
    done = served("import", people, *served.options, "--repeats", "first", "--journal", journal, *OVERWRITE)
    assert (done.code, enrolled(served.service)) == (0, {"ann@x.example": {"camp_1", "camp_2"}})


def test_rejects_of_standard_input_have_the_campaigns(served: Served) -> None:
    rows = "email,Campaign\nann@x.example,Spring\na@b@c,Autumn\nbo@x.example,\n"
    rejects = served.folder / "rejects.csv"
    options = (*served.options, "--journal", str(served.folder / "run.db"), "--rejects", str(rejects))
    assert served.piped(rows, "import", "-", *options).code == 3
    assert [row.target.campaign for row in Store(served.folder / "run.db").outcomes()] == ["camp_1", "camp_2", None]
    (row,) = csv.DictReader(rejects.read_text().splitlines())
    assert row["Campaign"] == "Autumn"
    assert served.piped("", "import", "-", *options, "--resume").code == 3  # from the rows in the journal
    (row,) = csv.DictReader(rejects.read_text().splitlines())
    assert {name: row[name] for name in ("email", "workspace", "campaign")} == {
        "email": "a@b@c",
        "workspace": "space_1",
        "campaign": "camp_2",
    }
    rejects.write_text(rejects.read_text().replace("a@b@c", "cy@x.example"))
    assert served("import", str(rejects), *served.options).code == 0
    assert enrolled(served.service)["cy@x.example"] == {"camp_2"}


@pytest.mark.thorough
@pytest.mark.parametrize("record", ["journal", pytest.param("ledger", marks=pytest.mark.nightly)])
def test_an_import_that_is_killed_at_any_request_goes_on_with_its_targets(
    record: str, service: FakeService, tmp_path: Path
) -> None:
    people = tmp_path / "people.csv"
    emails = [f"user{number}@x.example" for number in range(60)]
    rows = [f"{email},{name}" for email in emails for name in ("Spring", "camp_2")]
    people.write_text("\n".join(["email,Campaign", *rows]) + "\n")
    place = [f"--{record}", str(tmp_path / record), *OVERWRITE, "--concurrency", "4"]
    killing, codes = Killing(service), list[int]()
    with serve_in_thread(killing) as url:
        for killing.remaining in (2, 40, 70, 1_000):  # the first request lists the campaigns
            again = ["--resume"] if codes and record == "journal" else []
            killing.process = start_command("import", str(people), *connection_options(url), *place, *again)
            codes.append(wait_for_end(killing.process).code)
    assert codes == [-9, -9, -9, 0]
    assert enrolled(service) == {email: {"camp_1", "camp_2"} for email in emails}


def test_a_resumed_import_is_refused_if_a_campaign_differs(served: Served) -> None:
    rows = "".join(f"user{number}@x.example,Spring\n" for number in range(3))
    journal: Any = ("--journal", str(served.folder / "run.db"))
    assert served("import", served.save(f"email,Campaign\n{rows}"), *served.options, *journal).code == 0
    changed = served.save(f"email,Campaign\n{rows.replace('Spring', 'Autumn')}")
    assert "the input has changed since the run began" in served.refused("import", changed, *served.options, *journal, "--resume")
