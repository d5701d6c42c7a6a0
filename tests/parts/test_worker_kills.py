"""Parts on real processes that are killed with SIGKILL and run again: no row is lost or duplicated, and no label is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.parts import KEY, ROW, KillingService, find_wrong_effects, run_parts, served, write_people

from outreach_async import DuplicatePolicy
from outreach_async.parts import import_part, merge_reports, plan, results_of
from outreach_async.store import Store

pytestmark = pytest.mark.thorough

FILES, ROWS = 4, 60


@pytest.mark.parametrize("duplicates", ["skip", "overwrite"])
def test_killed_workers_lose_duplicate_and_mislabel_no_row(
    duplicates: DuplicatePolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)  # the workers inherit it
    emails = [f"u{number}@x.example" for number in range(FILES * ROWS)]
    emails[70::7] = [f"U{number - 70}@x.example" for number in range(70, len(emails), 7)]  # repeat others, capitalized
    paths = [tmp_path / f"{at}.csv" for at in range(FILES)]
    for at, path in enumerate(paths):
        write_people(path, emails[at * ROWS : (at + 1) * ROWS], at * ROWS)
    made = plan(paths, overrides={"Note": ROW}, duplicates=duplicates)
    service = KillingService(before=emails[:70:5])
    service.kills = {20, 61, 98, 141, 190}
    folder = tmp_path / "journals"
    folder.mkdir()
    with served(service) as connection:
        reports, uncertain = run_parts(service, made.parts, folder, connection)
        sent = service.requests
        assert [import_part(part, folder, connection) for part in made.parts] == [reports[part.id] for part in made.parts]
    assert service.requests == sent, "a finished part sent something"
    assert service.killed == len(service.kills)

    merged = merge_reports(reports.values())
    assert merged.rows == made.rows == len(emails)
    assert list(find_wrong_effects(service, made, lambda part: Store(folder / f"{part.id}.db").outcomes())) == []
    assert sent - len(emails) <= uncertain, "rows were sent again that no process may have sent"
    assert merged.uncertain <= uncertain
    assert sorted((found.file, found.number) for part in made.parts for found in results_of(part, folder)) == sorted(
        (str(path), line) for path in paths for line in range(2, ROWS + 2)
    ), "a row has no result, or several"
