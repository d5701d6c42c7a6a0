"""A folder of reports: an index, and a page for each workspace, without anything of the other workspaces."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unicodedata import normalize

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import SHARED_FLEETS, Shown, report, separated
from support.cli import Shell
from support.examples import WITHOUT_SHRINKING, scaled
from support.pages import Page

from outreach_async import OutreachClient
from outreach_async.audit import Report, stream
from outreach_async.audit.history import DayFigures, History, Readings
from outreach_async.audit.reports import name_pages, render_folder
from outreach_async.errors import InvalidRequest
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import hang, status
from outreach_async.testing import VirtualTime


@given(SHARED_FLEETS)
@settings(max_examples=scaled(20), phases=WITHOUT_SHRINKING)
def test_a_separate_report_of_unshared_mailboxes_is_that_of_an_audit_alone(fleet: list[Shown]) -> None:
    apart = [
        attrs.evolve(each, mailboxes=[attrs.evolve(box, email=f"{box.email}{at}", server_ip=f"{at}") for box in each.mailboxes])
        for at, each in enumerate(fleet)
    ]
    assert separated(*apart) == [report(each) for each in apart]


def agency(*, shared: bool = True) -> FakeService:
    """Return a service with three clients, which may share a domain and a server, and have nothing else in common."""
    service = FakeService(3)
    for at, name in enumerate(("alpha", "bravo", "carol")):
        service.add_workspace(f"space_{name}")
        about: dict[str, Any] = {
            "server_ip": "192.0.2.77" if shared else f"192.0.2.{at}",
            "type": "SMTP & IMAP",
            "domain_ip": f"198.51.100.{at}",
        }
        for n in range(4 + at):
            service.add_mailbox(
                f"space_{name}",
                id=f"mailbox_{name}{n}",
                email=f"{name}{n}@{name}-mail.example",
                blacklists=3 * (n == at),
                **about,
            )
        for n in range(3):
            service.add_mailbox(
                f"space_{name}",
                id=f"mailbox_{name}_s{n}",
                email=f"{name}-s{n}@{'shared' if shared else name}.example",
                spf=False,
                **about,
            )
        sent = 1_000 * (at + 3) + 7 * (at + 1)
        service.add_campaign(f"space_{name}", id=f"camp_{name}", name=f"Spring of {name}", status="live", steps=[{"sent": sent}])
    return service


NAMES = {"space_alpha": "Alpha GmbH", "space_bravo": "Bravo Ltd", "space_carol": "Carol SA"}


def day(workspace: str, place: int, campaign: str | None = None) -> DayFigures:
    sent = 10_100 + 1_111 * place
    return DayFigures(date="2026-01-01", workspace=workspace, id=campaign or workspace, name="", sent=sent, replied=1, bounced=1)


DAYS = [day(space, place, campaign) for place, space in enumerate(NAMES) for campaign in (None, space.replace("space", "camp"))]


async def read(service: FakeService, *spaces: str) -> tuple[Report, list[Report]]:
    async with OutreachClient(transport=FakeTransport(service), workspace=spaces[0]) as client:
        run = stream(client, spaces, names=NAMES, campaigns=True, clock=lambda: service.now)
        return await run, run.separate()


@pytest.mark.anyio
async def test_no_file_of_a_client_contains_anything_of_the_others() -> None:
    whole, parts = await read(agency(), *NAMES)
    files = render_folder(whole, parts, days=DAYS)

    for client, others in (("alpha", "bravo|carol"), ("bravo", "alpha|carol"), ("carol", "alpha|bravo")):
        figures = [f"{each.sent:,}|{each.sent}" for each in DAYS if client not in str(each.workspace)]
        stem = name_pages(NAMES, NAMES)[f"space_{client}"]
        for text in (files[f"{stem}.html"], files[f"{stem}.json"]):
            assert not re.search(f"(?i){others}|{'|'.join(figures)}", text)
            assert client in text


@pytest.mark.thorough
@pytest.mark.anyio
async def test_the_page_of_a_client_does_not_change_with_clients_that_share_nothing() -> None:
    whole, parts = await read(agency(shared=False), *NAMES)
    together = render_folder(whole, parts, days=DAYS)

    for space in NAMES:
        stem = name_pages(NAMES, NAMES)[space]
        alone = render_folder(*await read(agency(shared=False), space), days=DAYS)
        assert alone[f"{stem}.html"] == together[f"{stem}.html"]
        assert alone[f"{stem}.json"] == together[f"{stem}.json"]


@pytest.mark.anyio
async def test_index_pages_json_and_history_have_the_same_score(tmp_path: Path) -> None:
    service, readings, history = agency(), Readings(), History(tmp_path / "history.db")
    async with OutreachClient(transport=FakeTransport(service), workspace="space_alpha") as client:
        run = stream(client, NAMES, names=NAMES, clock=lambda: service.now, readings=readings)
        whole = await run
    assert history.append(whole, readings)
    files, stored = render_folder(whole, run.separate()), {day.id: day.score for day in history.daily("workspace")}

    index = files["index.html"].partition("Workspaces, worst first")[2]
    for space, stem in name_pages(NAMES, NAMES).items():
        score = f"{stored[space]:g}"
        assert score not in {"0", "100"}
        assert re.search(rf'>{space}</span></th><td data-label="Score"><span class="score \w+" dir="auto">{score}<', index)
        assert f"Score of 100</span><b>{score}</b>" in files[f"{stem}.html"]
        assert f"{json.loads(files[f'{stem}.json'])['scores']['overall']:g}" == score


@pytest.mark.anyio
async def test_the_index_shows_every_client_and_links_to_its_page() -> None:
    whole, parts = await read(agency(), *NAMES)
    files = render_folder(whole, parts)
    links = {link["href"] for link in Page(files["index.html"]).all("a")}

    assert {"alpha-gmbh.html", "bravo-ltd.html", "carol-sa.html"} <= links
    pages = [f"{stem}.{kind}" for stem in name_pages(NAMES, NAMES).values() for kind in ("html", "json")]
    assert list(files) == ["index.html", *pages]


def test_a_page_does_not_quote_the_failed_request_of_another_client(anyio_backend_name: str) -> None:
    service = agency()
    service.faults.add(
        status(503, body="space_bravo of Bravo Ltd is down"), match=lambda request: "space_bravo" in request.target
    )
    service.faults.add(hang(), match=lambda request: "space_alpha" in request.target)

    async def audit() -> list[Report]:
        async with OutreachClient(transport=FakeTransport(service), workspace="space_bravo") as client:
            run = stream(client, ["space_bravo", "space_alpha"], names=NAMES, clock=lambda: service.now, deadline=5)
            await run
            return run.separate()

    bravo, alpha = anyio.run(audit, backend=anyio_backend_name, backend_options=VirtualTime().options(anyio_backend_name))

    (message,) = (finding.message for finding in alpha.findings if finding.rule == "OA901")
    assert message.endswith("the deadline of 5 s for the audit passed; the last request failed: status 503")
    assert "bravo" not in f"{alpha.to_dict()}".lower()
    assert bravo.unreadable == ["space_bravo"]


def test_only_a_finished_audit_can_be_separated() -> None:
    client = OutreachClient(transport=FakeTransport(agency()), workspace="space_alpha")
    with pytest.raises(InvalidRequest, match=r"^separate: the audit has not finished; await it, or iterate"):
        stream(client, NAMES).separate()


@pytest.mark.parametrize(
    ("names", "stems"),
    [
        ({"a": "Acme GmbH", "b": "Büro & Co."}, ["acme-gmbh", "büro-co"]),
        ({"space_1": "", "b": "../../etc/passwd"}, ["workspace-d4ba2a0b8e", "etc-passwd"]),
        ({"a": "Index", "b": "same", "c": "SAME"}, ["index-40f89e395b", "same-93ca9e8be1", "same-9aca7a7a94"]),
        ({"a": "Mu\u0308ller GmbH", "b": "हिन्दी", "c": "COM\u00b9"}, ["müller-gmbh", "हिन्दी", "com1-9aca7a7a94"]),
        ({"a": "Müller", "b": "muller", "c": "\u0308"}, ["müller-40f89e395b", "muller-93ca9e8be1", "\u0308-9aca7a7a94"]),
    ],
)
def test_the_files_have_the_names_of_the_workspaces(names: dict[str, str], stems: list[str]) -> None:
    assert [re.sub("-[0-9a-f]{10}$", "-*", stem) for stem in name_pages(names, names).values()] == [
        re.sub("-[0-9a-f]{10}$", "-*", stem) for stem in stems
    ]


@given(st.dictionaries(st.text(min_size=1), st.text() | st.sampled_from(["Aux", "ü", "u", "u\u0308", "x" * 300]), max_size=6))
def test_every_workspace_has_files_of_its_own_on_every_system(names: dict[str, str]) -> None:
    stems = list(name_pages(names, names).values())
    assert len({re.sub("\\W", "", normalize("NFKD", stem)).casefold() for stem in [*stems, "index"]}) == len(names) + 1
    for stem in stems:
        assert not re.search(r'[\\/:*?"<>|.\s\x00-\x1f]', stem)
        assert stem.isprintable()
        assert 0 < len(f"{stem}.json".encode()) < 160
        assert not re.fullmatch("con|prn|aux|nul|com[0-9]|lpt[0-9]", stem)


@pytest.mark.thorough
def test_the_command_writes_the_folder_and_compares_each_page_with_the_last_one(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    command = ("audit", "--base-url", "fake:", "--campaigns", "--output-folder", str(folder))
    first = shell(*command)
    before = json.loads((folder / "space_demo.json").read_bytes())
    second = shell(*command)
    after = json.loads((folder / "space_demo.json").read_bytes())

    assert (first.code, first.err, second.code) == (1, "", 1)
    assert f"Written: {folder / 'index.html'} and 2 pages of workspaces" in first.out
    assert sorted(path.name for path in folder.iterdir()) == [
        *("index.html", "space_demo.html", "space_demo.json", "space_demo_eu.html", "space_demo_eu.json")
    ]
    assert (before["diff"], after["changes"]["new"], after["changes"]["unchanged"] > 10) == (None, 0, True)
    assert "space_demo_eu" not in (folder / "space_demo.html").read_text()


@pytest.mark.thorough
def test_a_folder_keeps_files_of_another_kind(shell: Shell, tmp_path: Path) -> None:
    command = ("audit", "--base-url", "fake:", "--output-folder", str(tmp_path))
    (tmp_path / "index.html").write_text("my own page")
    refused = shell(*command)

    assert refused.code == 2
    assert "--output-folder" in refused.err
    assert "--force" in refused.err
    assert (tmp_path / "index.html").read_text() == "my own page"
    assert shell(*command, "--force").code == 1


@pytest.mark.thorough
def test_a_report_on_several_workspaces_is_not_compared_with_the_page_of_one(shell: Shell, tmp_path: Path) -> None:
    shell("audit", "--base-url", "fake:", "--output", str(tmp_path / "space_demo.json"))
    shell("audit", "--base-url", "fake:", "--output-folder", str(tmp_path))
    assert json.loads((tmp_path / "space_demo.json").read_bytes())["diff"] is None
