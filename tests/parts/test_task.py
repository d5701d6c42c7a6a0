"""One part of an import as a task: its connection, its journal, its report, and its secrets."""

from __future__ import annotations

import logging
import pickle
import random
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.parts import KEY, ROW, SPACE, KillingService, QuotingConnection

from outreach_async import Outcome, SharedRate
from outreach_async.errors import BulkStopped, BulkSuspended, InvalidRequest
from outreach_async.fake import faults
from outreach_async.parts import (
    Connection,
    FailedRow,
    ImportPlan,
    ImportReport,
    import_part,
    merge_reports,
    plan,
    results_of,
)
from outreach_async.store import stores_in

CSV = "E-mail,personal note\nann@x.example,0\n,1\nbo@x.example,2\nANN@x.example,3\n,4\n"
"""Every row has a number, so that the service can tell the rows apart."""


@pytest.fixture
def made(tmp_path: Path) -> ImportPlan:
    path = tmp_path / "people.csv"
    path.write_text(CSV, encoding="utf-8")
    return plan([path])


def test_parts_create_the_contacts_and_report_failures_by_line(
    made: ImportPlan, connection: Connection, service: KillingService, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "journals"
    reports = [import_part(part, folder, connection) for part in made.parts]
    merged = merge_reports(reports)
    counts = {outcome.value: count for outcome, count in merged.outcomes.items() if count}
    assert (merged.rows, merged.parts, counts) == (5, ("00000", "repeats"), {"added": 2, "skipped": 1, "rejected": 2})
    message = "email: expected an address, got a blank string; give the contact an e-mail address"
    where = made.files[0].location
    assert merged.failures == (FailedRow(where, 3, "rejected", message, SPACE), FailedRow(where, 6, "rejected", message, SPACE))
    assert [report.failed for report in reports] == [2, 0]
    assert merged.failed == 2
    assert [service.effects[row] for row in (0, 2, 3)] == [["added"], ["added"], ["skipped"]]
    assert sorted(path.name for path in folder.glob("*.db")) == ["00000.db", "repeats.db"]


def test_a_part_reports_people_who_may_not_be_written_to_as_no_failure(connection: Connection, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(f"E-mail,{ROW},Unsubscribed\nann@x.example,0,\nbo@x.example,1,true\n", encoding="utf-8")
    (part,) = plan([path]).parts
    report = import_part(part, tmp_path, connection)
    assert (report.rows, report.failed, report.failures, report.outcomes[Outcome.EXCLUDED]) == (2, 0, (), 1)
    (bo,) = [found.to_dict() for found in results_of(part, tmp_path) if found.email == "bo@x.example"]
    assert (bo["status"], bo["error"], bo["remedy"]) == ("excluded", "column 'Unsubscribed' says 'true'", None)


@pytest.mark.parametrize("place", ["{}", "file://{}/"])
def test_a_finished_part_sends_nothing_and_reports_the_same(
    made: ImportPlan, connection: Connection, service: KillingService, tmp_path: Path, place: str
) -> None:
    folder = place.format(tmp_path / "journals")
    reports = [import_part(part, folder, connection) for part in made.parts]
    requests = service.requests
    assert [import_part(part, folder, connection) for part in made.parts] == reports
    assert service.requests == requests
    assert [row.line for row in reports[0].failures] == [3, 6]
    assert {journal.report().state for journal in stores_in(folder).values()} == {"finished"}


def test_a_plan_passes_its_options_to_the_service(connection: Connection, service: KillingService, tmp_path: Path) -> None:
    service.fake.add_contacts(SPACE, [{"email": "bo@x.example"}])
    path = tmp_path / "people.csv"
    path.write_text(f"E-mail,{ROW}\nann@x.example,0\nbo@x.example,1\nann@x.example,2\n", encoding="utf-8")
    changed = plan([path], duplicates="overwrite", repeats="first", strict_validation=False)
    merged = merge_reports(import_part(part, tmp_path, connection) for part in changed.parts)
    assert (merged.outcomes[Outcome.OVERWRITTEN], merged.outcomes[Outcome.ADDED]) == (1, 1)
    assert (merged.repeats, merged.outcomes[Outcome.NOT_APPLIED], merged.failed) == (1, 1, 0)
    assert service.options == {"duplicates": "overwrite", "strict_validation": False, "campaign": None}


def test_a_report_lists_a_hundred_failures_and_the_results_have_all(connection: Connection, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("E-mail,City\nann@x.example,0\n" + ",Rome\n" * 130, encoding="utf-8")
    (part,) = plan([path], overrides={"City": ROW}).parts
    report = import_part(part, tmp_path, connection)
    assert (len(report.failures), report.failed) == (100, 130)
    assert [found.number for found in results_of(part, tmp_path) if found.outcome.status == "rejected"] == list(range(3, 133))


def test_a_part_is_refused_before_anything_is_sent_if_its_last_file_has_changed(
    connection: Connection, service: KillingService, tmp_path: Path
) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for number, path in enumerate(paths):
        path.write_text(f"E-mail,{ROW}\nann@x.example,{number}\n", encoding="utf-8")
    (part,) = plan(paths).parts
    paths[1].write_text(f"E-mail,{ROW}\nann@x.example,1\nbo@x.example,2\n", encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"b.csv: the file has changed"):
        import_part(part, tmp_path / "journals", connection)
    assert service.requests == 0
    assert not (tmp_path / "journals").exists()  # the next plan can use the folder


@pytest.mark.parametrize("place", ["journals", "file://{}/journals", "memory://plans/{}"])
def test_a_folder_with_the_journals_of_another_plan_is_refused(
    made: ImportPlan, connection: Connection, service: KillingService, tmp_path: Path, place: str
) -> None:
    """Add a file to the input after the part 00000 was imported. Its rows are repeated in the new file."""
    folder = place.format(tmp_path)
    import_part(made.parts[0], folder if "://" in folder else tmp_path / folder, connection)
    other = tmp_path / "july.csv"
    other.write_text(Path(made.files[0].location).read_text(encoding="utf-8"), encoding="utf-8")
    requests = service.requests
    for part in plan([made.files[0].location, other]).parts:
        with pytest.raises(InvalidRequest, match=r'belongs to another plan: .* use a new folder with earlier="unknown"'):
            import_part(part, folder if "://" in folder else tmp_path / folder, connection)
    assert service.requests == requests


@pytest.mark.parametrize("other", [{"base_url": "https://b.example"}, {"workspace": "space_other"}], ids=["address", "workspace"])
def test_a_part_for_another_service_or_workspace_is_refused(
    made: ImportPlan, connection: Connection, service: KillingService, tmp_path: Path, other: Any
) -> None:
    first, second, *_ = made.parts
    import_part(first, tmp_path / "journals", connection)
    requests, (name,) = service.requests, other
    was, now = getattr(connection, name), other[name]
    with pytest.raises(InvalidRequest, match=f"journals belongs to another run: {name} was '{was}' and is now '{now}'"):
        import_part(second, tmp_path / "journals", attrs.evolve(connection, **other))
    assert service.requests == requests
    assert not (tmp_path / "journals" / f"{second.id}.db").exists()


def test_after_a_lost_journal_no_label_is_certain_if_told_so(made: ImportPlan, connection: Connection, tmp_path: Path) -> None:
    part = made.parts[0]
    import_part(part, tmp_path / "lost", connection)
    report = import_part(part, tmp_path / "new", connection, earlier="unknown")
    assert (report.outcomes[Outcome.SKIPPED], report.uncertain) == (1, 1)


@pytest.mark.parametrize("place", ["{}", "file://{}"])
def test_a_suspended_part_is_resumed_and_its_results_have_each_row_once(
    made: ImportPlan, connection: Connection, service: KillingService, tmp_path: Path, place: str
) -> None:
    folder, (part, _) = place.format(tmp_path / "journals"), made.parts
    assert list(results_of(part, folder)) == []
    service.fake.faults.script("create_contact", faults.status(503, retry_after=3600))
    with pytest.raises(BulkSuspended) as caught:
        import_part(part, folder, connection)
    assert pickle.loads(pickle.dumps(caught.value)).retry_after == 3600  # noqa: S301 - our own bytes
    assert {found.outcome.status for found in results_of(part, folder)} == {"rejected"}  # so far
    import_part(part, folder, connection)
    found = [each.to_dict() for each in results_of(part, folder)]
    assert {row["file"] for row in found} == {part.files[0].location}
    assert [(row["line"], row["email"], row["status"], row["certain"]) for row in found] == [
        (3, "", "rejected", True),
        (4, "bo@x.example", "added", True),
        (6, "", "rejected", True),
    ]


def test_the_journal_of_another_plan_has_no_results(made: ImportPlan, connection: Connection, tmp_path: Path) -> None:
    import_part(made.parts[0], tmp_path / "journals", connection)
    path = Path(made.files[0].location)
    path.write_text(path.read_text(encoding="utf-8").replace("bo@", "cy@"), encoding="utf-8")
    assert list(results_of(plan([path]).parts[0], tmp_path / "journals")) == []


def test_a_part_takes_its_share_of_a_rate(made: ImportPlan, connection: Connection, tmp_path: Path) -> None:
    rate = SharedRate(limit=1000.0)
    assert import_part(made.parts[0], tmp_path, connection, rate=rate).rows == 3
    assert len(rate._coordinator.clients) == 1


def test_a_drained_part_is_suspended_and_resumed(made: ImportPlan, connection: Connection, tmp_path: Path) -> None:
    part = made.parts[0]
    with pytest.raises(BulkSuspended, match="part 00000 was cancelled; run the part again") as caught:
        import_part(part, tmp_path, connection, on_start=lambda outcomes: outcomes.drain())
    assert caught.value.resumable
    assert import_part(part, tmp_path, connection).rows == 3


def test_without_a_key_in_the_environment_the_error_says_so(
    made: ImportPlan, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTREACH_OWNER_KEY")
    with pytest.raises(InvalidRequest, match=r"^owner_key: OUTREACH_OWNER_KEY is not set in this worker's environment"):
        import_part(made.parts[0], tmp_path, connection)


def test_no_argument_result_error_log_or_file_contains_the_key(
    made: ImportPlan,
    connection: Connection,
    service: KillingService,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = [made, connection, made.parts, made.to_json()]
    with caplog.at_level(logging.DEBUG):
        seen += [import_part(part, tmp_path / "journals", connection) for part in made.parts]
        service.fake.faults.add(faults.status(401, body=f'{{"message": "unknown key {KEY}"}}'))
        with pytest.raises(BulkStopped) as caught:
            import_part(made.parts[0], tmp_path / "others", connection)
    seen += [caught.value, merge_reports(seen[4:6]), caplog.text, [vars(record) for record in caplog.records]]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for content in [*map(pickle.dumps, seen[:-1]), *(repr(value).encode() for value in seen), *files]:
        assert KEY.encode() not in content
    assert len(files) >= 4


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_url": "https://user:hidden@api.example"}, "base_url: expected a URL without user and password"),
        ({"base_url": "api.example"}, "base_url: expected a URL with a host"),
        ({"workspace": "x"}, "workspace: "),
        ({"backend": "curl"}, "backend: expected one of 'auto', 'sockets', 'httpx', 'httpx2', 'aiohttp'"),
        ({"concurrency": 0}, "concurrency: expected at least 1"),
        ({"stop_after_rejects": 0}, "stop_after_rejects: expected at least 1"),
        ({"stop_after_rejects": None, "timeout": 0}, "timeout: expected more than 0 seconds"),
        ({"rate": 0.0}, "rate: expected a finite number of requests per second greater than 0, got 0"),
        ({"timeout": -1.0}, "timeout: expected more than 0 seconds"),
        ({"max_outage": 0.0}, "max_outage: expected more than 0 seconds"),
    ],
)
def test_a_connection_checks_its_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        Connection(**{"base_url": "https://api.example", "workspace": SPACE, **values})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("backend", ["auto", "httpx2", "aiohttp", "sockets"])
def test_a_part_is_imported_over_every_backend(
    backend: Any, made: ImportPlan, connection: Connection, service: KillingService, tmp_path: Path
) -> None:
    chosen = attrs.evolve(connection, backend=backend, concurrency=200)
    report = import_part(made.parts[0], tmp_path, chosen)
    assert (report.rows, service.effects[2]) == (3, ["added"])
    transport: Any = chosen._create_transport()
    anyio.run(transport.aclose)
    assert transport.max_in_flight == 200


def part_report(**values: Any) -> ImportReport:
    outcomes = dict.fromkeys(Outcome, 0)
    return ImportReport(
        **{"parts": ("00000",), "fingerprints": ("4f",), "outcomes": outcomes, "uncertain": 0, "seconds": 0.0, **values}
    )


counts = st.fixed_dictionaries(dict.fromkeys(Outcome, st.integers(0, 9)))
part_reports = st.lists(
    st.builds(
        lambda at, outcomes, seconds: part_report(
            parts=(f"{at:05}",),
            fingerprints=(str(at),),
            rows=sum(outcomes.values()),
            outcomes=outcomes,
            seconds=seconds,
            failures=(FailedRow("a.csv", at, "rejected", "no"),),
        ),
        st.integers(0, 99),
        counts,
        st.floats(0, 9),
    ),
    unique_by=lambda report: report.parts,
)


@pytest.mark.thorough
@given(part_reports, st.randoms(use_true_random=False), st.integers(0, 5))
def test_merging_ignores_order_and_duplicates(reports: list[ImportReport], chance: random.Random, copies: int) -> None:
    several = reports + reports[:copies]
    chance.shuffle(several)
    merged = merge_reports(several)
    assert merged == merge_reports(reports)
    assert merged.rows == sum(report.rows for report in reports)
    assert merged.failed == sum(report.failed for report in reports)
    assert len(merged.failures) == len(merged.parts) == len(reports)


def test_merging_counts_outcomes_that_only_one_report_has() -> None:
    one = part_report(rows=2, outcomes={Outcome.ADDED: 1, Outcome("stored"): 1})
    other = part_report(rows=2, parts=("00001",), outcomes={Outcome.ADDED: 1, Outcome.EXCLUDED: 1})
    merged = merge_reports([one, other])
    assert merged.outcomes == dict.fromkeys(Outcome, 0) | {"added": 2, "stored": 1, "excluded": 1}
    assert (merged.rows, merged.failed) == (4, 0)


CONFLICTS: dict[str, Callable[[ImportReport], ImportReport]] = {
    "different plans": lambda report: attrs.evolve(report, fingerprints=("other",)),
    "different journals": lambda report: attrs.evolve(report, uncertain=1),
}


@pytest.mark.parametrize(("what", "change"), CONFLICTS.items(), ids=CONFLICTS)
def test_two_reports_of_one_part_that_differ_are_refused(what: str, change: Callable[[ImportReport], ImportReport]) -> None:
    one = part_report(rows=0)
    with pytest.raises(InvalidRequest, match=f"part 00000 has two reports, from {what}"):
        merge_reports([one, change(one)])


def test_reports_are_json_values_with_their_failures() -> None:
    row = FailedRow("a.csv", 2, "rejected", "no")
    report = part_report(rows=1, outcomes=dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: 1}, failures=(row,))
    failure = {"file": "a.csv", "line": 2, "status": "rejected", "message": "no", "workspace": None, "campaign": None}
    assert report.to_dict()["failures"] == merge_reports([report]).to_dict()["failures"] == [failure]
    assert (report.to_dict()["parts"], merge_reports([report])) == (["00000"], report)


@pytest.mark.thorough
def test_the_cause_of_an_error_is_not_printed_by_a_process_pool(made: ImportPlan, connection: Connection, tmp_path: Path) -> None:
    quoting = QuotingConnection(**attrs.asdict(connection))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(import_part, made.parts[0], tmp_path, quoting).exception()
    printed = "".join(traceback.format_exception(error))
    assert ("TransportError: lost" in printed, KEY in printed) == (True, False)
