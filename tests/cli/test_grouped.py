"""What an import prints of many rows: groups by reason with counts, on a terminal never more than fits on a screen."""

from __future__ import annotations

import pytest
from support.cli import Served

from outreach_async.fake.faults import status
from outreach_async.importer._groups import MAX_GROUPS, Groups, RowKey, find_reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "country: 'Germny': expected a country's name; did you mean 'DE'?",
            "country: ...: expected a country's name",
        ),
        ("email: same address as line 12; remove one", "email: same address as line ...; remove one"),
        ("no contact ann@x.example at https://x.example/a?b=c today", "no contact ... at ... today"),
        ("custom_3 must be at most 50 characters, not 61.", "custom_3 must be at most ... characters, not ...."),
        ("Rom is no city, and Romania no Rom", "... is no city, and Romania no ..."),
        ("x" * 300, "x" * 200 + "..."),
    ],
)
def test_a_reason_has_none_of_the_values_of_its_row(message: str, reason: str) -> None:
    assert find_reason(message, ["Rom", "no"]) == reason


def test_the_number_of_groups_is_bounded_and_their_counts_add_up() -> None:
    groups: Groups[RowKey] = Groups()
    for at in range(10_000):
        groups.add(RowKey("rejected", None, "", f"reason {at % 5000}"), "message")
    found = groups.ordered()
    assert len(found) == MAX_GROUPS + 1
    assert sum(group.count for group in found) == groups.count == 10_000
    assert found[0].key.reason == "other reasons"


def test_a_service_that_gives_every_row_a_reason_of_its_own_fills_no_screen(served: Served) -> None:
    words = ["".join(chr(97 + (at // 26**place) % 26) for place in range(3)) for at in range(300)]
    faults = [status(422, body=f'{{"message": "refused as {word}"}}'.encode()) for word in words]
    served.service.faults.script("create_contact", *faults)
    path = served.save("email\n" + "".join(f"u{at}@x.example\n" for at in range(300)))
    options = (*served.options, "--stop-after-rejects", "never")
    lines = served.shown("import", path, *options)
    assert len(lines) <= 40
    assert sum("more reasons" in line for line in lines) == 1
