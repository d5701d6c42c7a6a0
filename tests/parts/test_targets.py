"""Imports in parts, and on Dask, of files whose rows name their campaign and workspace."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster
from support.cli import Shell, serve_in_thread
from support.parts import KEY, SPACE

from outreach_async.fake import FakeService
from outreach_async.parts import Connection, FailedRow, ImportPlan, import_part, merge_reports, plan
from outreach_async.sync import SyncClient

OTHER = "space_other"
FIRST = "E-mail,Campaign,Workspace\nann@x.example,Spring,\nbo@x.example,camp_2,\ncy@x.example,Spring,space_other\n"
SECOND = "Mail,Liste\nANN@x.example,Autumn\ndee@x.example,Sprnig\neve@x.example,\nfay@x.example,camp_9\n"
MAP = {"Campaign": "campaign", "Workspace": "workspace", "Liste": "campaign"}
ENROLLED = {
    (SPACE, "ann@x.example"): {"camp_1", "camp_2"},
    (SPACE, "bo@x.example"): {"camp_2"},
    (SPACE, "eve@x.example"): set[str](),
    (OTHER, "cy@x.example"): {"camp_3"},
}
UNKNOWN = "campaign: expected the name of a campaign in space_parts, got 'Sprnig'; did you mean 'Spring'?"
REFUSED = "create_contact: the service answered 404: no campaign has this id"


@pytest.fixture
def fake() -> FakeService:
    fake = FakeService()
    for workspace in (SPACE, OTHER):
        fake.add_workspace(workspace)
    fake.add_owner_key(SPACE, OTHER, key=KEY)
    for workspace, id_, name in (SPACE, "camp_1", "Spring"), (SPACE, "camp_2", "Autumn"), (OTHER, "camp_3", "Spring"):
        fake.add_campaign(workspace, id=id_, name=name)
    return fake


@pytest.fixture
def connection(fake: FakeService, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    del shell  # the fixture clears the environment
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    with serve_in_thread(fake) as url:
        yield Connection(base_url=url, workspace=SPACE)


@pytest.fixture
def made(tmp_path: Path) -> ImportPlan:
    paths = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for path, content in zip(paths, (FIRST, SECOND), strict=True):
        path.write_text(content, encoding="utf-8")
    return plan(paths, overrides=MAP, duplicates="overwrite")


def enrolled(fake: FakeService) -> dict[tuple[str, str], set[str]]:
    return {
        (space, contact["email"].lower()): set(contact["campaigns"])
        for space in (SPACE, OTHER)
        for contact in fake.contacts(space)
    }


def failures(path: Path) -> tuple[FailedRow, ...]:
    return (FailedRow(str(path), 3, "rejected", UNKNOWN), FailedRow(str(path), 5, "rejected", REFUSED, SPACE, "camp_9"))


@pytest.mark.thorough
def test_parts_send_each_row_to_its_target(
    made: ImportPlan, connection: Connection, fake: FakeService, tmp_path: Path, shell: Shell
) -> None:
    made = ImportPlan.from_json(made.to_json())
    report = merge_reports([import_part(part, tmp_path / "journals", connection) for part in made.parts])
    assert enrolled(fake) == ENROLLED
    assert report.failures == failures(tmp_path / "second.csv")
    results, rejects = tmp_path / "results.csv", tmp_path / "rejects.csv"
    done = shell("report", str(tmp_path / "journals"), "--results", str(results), "--rejects", str(rejects))
    assert (done.code, done.err) == (3, "")
    found = {(row["email"], row["workspace"], row["campaign"]) for row in csv.DictReader(results.read_text().splitlines())}
    assert {("cy@x.example", OTHER, "camp_3"), ("ANN@x.example", SPACE, "camp_2"), ("dee@x.example", "", "")} <= found
    rows = csv.DictReader(rejects.read_text().splitlines())
    assert [(row["Campaign"], row["_field"]) for row in rows] == [("Sprnig", "campaign"), ("camp_9", "")]


KNOWN = "E-mail,Campaign,Workspace\nann@x.example,Spring,\nbo@x.example,camp_2,\ncy@x.example,Spring,Other\n"


def test_a_column_of_known_campaigns_is_recognised_in_a_plan(tmp_path: Path, connection: Connection, fake: FakeService) -> None:
    (tmp_path / "first.csv").write_text(KNOWN, encoding="utf-8")
    with SyncClient(connection.base_url, workspace=SPACE) as client:
        made = plan(
            [tmp_path / "first.csv"],
            workspace=SPACE,
            workspaces={"Other": OTHER},
            list_campaigns=lambda workspace: client.with_options(workspace=workspace).campaigns.list(),
        )
    assert made.files[0].codes == ("email", "campaign", "workspace")
    for part in ImportPlan.from_json(made.to_json()).parts:
        import_part(part, tmp_path / "journals", connection)
    assert enrolled(fake) == {each: campaigns for each, campaigns in ENROLLED.items() if each[1] != "eve@x.example"} | {
        (SPACE, "ann@x.example"): {"camp_1"}
    }


@pytest.mark.parametrize("name", ["Sprnig", "Herbst"])
def test_a_column_with_an_unknown_campaign_is_not_ignored_in_a_plan(tmp_path: Path, connection: Connection, name: str) -> None:
    (tmp_path / "first.csv").write_text(KNOWN.replace("camp_2", name), encoding="utf-8")
    with (
        SyncClient(connection.base_url, workspace=SPACE) as client,
        pytest.raises(ValueError, match=r"--map Campaign=campaign .*--map Workspace=workspace"),
    ):
        plan(
            [tmp_path / "first.csv"],
            ignore_unknown=True,
            workspace=SPACE,
            workspaces={"Other": OTHER},
            list_campaigns=lambda workspace: client.with_options(workspace=workspace).campaigns.list(),
        )


def test_without_a_list_of_campaigns_only_ids_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "first.csv"
    path.write_text(FIRST, encoding="utf-8")
    with pytest.raises(ValueError, match=r"--map Campaign=campaign .*--map Workspace=workspace"):
        plan([path], ignore_unknown=True)
    path.write_text("E-mail,Campaign\nann@x.example,camp_1\n", encoding="utf-8")
    assert plan([path]).files[0].codes == ("email", "campaign")
    with pytest.raises(ValueError, match="workspace: expected a string starting"):
        plan([path], list_campaigns=lambda _workspace: ())


def test_the_command_recognises_campaigns_of_an_import_in_parts(
    tmp_path: Path, connection: Connection, fake: FakeService, shell: Shell
) -> None:
    (tmp_path / "first.csv").write_text(KNOWN.replace("Other", OTHER), encoding="utf-8")
    with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0") as cluster:
        place = ("--base-url", connection.base_url, "--workspace", SPACE, "--journal", f"file://{tmp_path}/journals")
        done = shell("import", str(tmp_path / "first.csv"), *place, "--dask", cluster.scheduler_address)
    assert (done.code, done.err) == (0, "")
    assert "Campaign\tcampaign\tevery value is known\n" in done.out
    assert enrolled(fake)[OTHER, "cy@x.example"] == {"camp_3"}
