from __future__ import annotations

import re
from typing import Any

import pytest
from support.fake import SPACE, START, document, page, refusing, small_world
from support.simulation import boxes_of
from support.wire import TABLES

from outreach_async.fake import FakeService

COUNTS = ("campaigns", "daily_limit", "blacklists", "sent_today", "sent_30days", "sent_90days", "bounced_30days", "created_at")
MAILBOX_FIELDS = tuple(TABLES["Mailbox"])


def generated_mailboxes(count: int = 200, seed: int = 0, **fields: Any) -> Any:
    fake = FakeService(seed)
    fake.add_workspace(SPACE)
    fake.add_mailboxes(SPACE, count, **fields)
    return boxes_of(fake)


def test_b1_types_and_statuses_are_the_observed_ones_and_domain_ip_may_be_null() -> None:
    found = generated_mailboxes()
    assert {box["type"] for box in found} == {"Google", "SMTP & IMAP"}
    assert {box["status"] for box in found} == {"active"}
    assert {box["domain_ip"] is None for box in found} == {True, False}
    assert {type(box[name]) for box in found for name in COUNTS} == {int}


@pytest.mark.parametrize("limit", [0, 7, 40, 500])
def test_b2_to_b4_generated_values_are_consistent(limit: int) -> None:
    for box in generated_mailboxes(daily_limit=limit):
        assert box["daily_limit"] == limit
        assert 0 <= box["sent_today"] <= limit
        assert box["sent_today"] <= box["sent_30days"] <= box["sent_90days"] <= 90 * limit
        assert 0 <= box["bounced_30days"] <= 0.02 * box["sent_30days"]
        assert 0 <= box["avg_click_rate"] <= box["avg_open_rate"] <= 90
        assert 0.6 * box["avg_open_rate"] <= box["opened_14days"] <= 100
        assert (box["last_activity"] == "Never") == (limit == 0)


def test_generated_mailboxes_are_healthy_and_warmed_up() -> None:
    found = generated_mailboxes()

    assert all(box["spf"] and box["dkim"] and box["dmarc"] and box["blacklists"] == 0 for box in found)
    assert all(START - box["created_at"] > 28 * 86400 for box in found)
    domains = [box["email"].partition("@")[2] for box in found]
    assert max(domains.count(domain) for domain in domains) <= 4
    assert all(domain.endswith(".example") for domain in domains)
    assert len({box["email"] for box in found}) == len(found)


@pytest.mark.thorough
def test_emails_stay_unique_when_names_run_out() -> None:
    emails = [box["email"] for box in generated_mailboxes(2000, domain="acme.example")]
    fake = FakeService()
    fake.add_workspace(SPACE)
    fake.add_mailboxes(SPACE, 1500, domain="acme.example")
    fake.add_mailboxes(SPACE, 1500, domain="acme.example")
    emails += [box["email"] for n in (1, 2) for box in document(page(fake, "/mailboxes", display=2000, page=n))["data"]]

    assert len(set(emails)) == 3000


VALUES: dict[str, Any] = {
    "email": "me@acme.example", "sender_name": "", "status": "error", "campaigns": 3, "daily_limit": 1, "spf": False,
    "dkim": None, "dmarc": "yes", "blacklists": 4, "age": "a month", "sent_today": 999, "sent_30days": -5, "opened_14days": 101.5,
    "sent_90days": 1, "bounced_30days": 10**6, "avg_open_rate": 33.333333, "avg_click_rate": "12", "last_activity": "yesterday",
    "type": "Outlook", "created": "long ago", "domain_ip": None, "server_ip": "198.51.100.7", "created_at": START + 100,
}  # fmt: skip


def test_every_field_may_be_set_to_valid_or_invalid_values() -> None:
    (box,) = generated_mailboxes(1, **VALUES)
    assert {**box, **VALUES} == box
    assert VALUES.keys() == set(MAILBOX_FIELDS) - {"id"}


def test_generated_fields_are_consistent_with_those_that_are_set() -> None:
    (box,) = generated_mailboxes(1, sent_30days=0)
    assert (box["sent_today"], box["bounced_30days"], box["opened_14days"], box["last_activity"]) == (0, 0, 0, "Never")
    (box,) = generated_mailboxes(1, sent_30days=10_000)
    assert 10_000 == box["sent_30days"] <= box["sent_90days"]
    (box,) = generated_mailboxes(1, created_at=START - 86400)
    assert box["sent_90days"] == box["sent_30days"] == box["sent_today"]
    assert (box["age"], box["created"]) == ("1 day ago", "1 day ago")
    (box,) = generated_mailboxes(1, domain="acme.example")
    assert box["email"].endswith("@acme.example")


def test_a_rate_may_be_a_fraction_and_last_activity_a_time() -> None:
    (box,) = generated_mailboxes(1, opened_14days=(1, 3), avg_open_rate=[1, 8], last_activity=START - 3600)
    assert (box["opened_14days"], box["avg_open_rate"], box["last_activity"]) == (33.33, 12.5, "1 hour ago")


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"sfp": False}, TypeError, r"a mailbox has no field 'sfp'; did you mean spf\?"),
        ({"created_at": "yesterday"}, TypeError, "created_at: expected Unix seconds"),
        ({"as_of": "yesterday"}, TypeError, "as_of: expected Unix seconds"),
        ({"status": {1, 2}}, TypeError, "set is not JSON serializable"),
        ({"created_at": float("nan")}, ValueError, "JSON"),
        ({"created_at": float("inf")}, ValueError, "JSON"),
    ],
)
def test_an_invalid_field_is_refused_and_changes_nothing(fields: dict[str, Any], error: type[Exception], message: str) -> None:
    fake = small_world()
    with refusing(fake, error, message):
        fake.add_mailbox(SPACE, **fields)


def wrong(box: Any) -> bool:
    return (
        not (box["spf"] and box["dkim"] and box["dmarc"])
        or box["blacklists"] > 0
        or box["sent_today"] > box["daily_limit"]
        or box["status"] != "active"
        or box["bounced_30days"] > 0.1 * box["sent_30days"]
    )


def test_a_share_of_the_mailboxes_may_have_problems() -> None:
    found = generated_mailboxes(400, trouble=0.25)
    assert 60 < sum(map(wrong, found)) < 140
    assert all(map(wrong, generated_mailboxes(50, trouble=1.0)))
    assert not any(map(wrong, generated_mailboxes(50)))


def test_b4_campaigns_counts_those_that_use_the_mailbox_in_any_status() -> None:
    fake = small_world()
    first, second = (box["id"] for box in boxes_of(fake)[:2])
    for status in ("live", "draft", "paused"):
        fake.add_campaign(SPACE, status=status, mailboxes=[first])

    assert [box["campaigns"] for box in boxes_of(fake)[:2]] == [4, 1]
    assert boxes_of(fake)[1]["id"] == second


def test_t18_relative_texts_follow_the_clock() -> None:
    fake = FakeService()
    fake.add_workspace(SPACE)
    fake.add_mailbox(SPACE, created_at=START - 86400 * 20)
    (before,) = boxes_of(fake)
    fake.advance(days=30)
    (after,) = boxes_of(fake)

    assert (before["age"], before["created"]) == ("20 days ago", "20 days ago")
    assert (after["age"], after["created"], after["last_activity"]) == ("1 month ago", "1 month ago", "1 month ago")
    assert re.fullmatch(r"just now|\d+ (minute|hour)s? ago", before["last_activity"])
    moving = {"age", "created", "last_activity", "sent_today", "sent_30days", "opened_14days", "sent_90days", "bounced_30days"}
    assert {name: before[name] for name in before if name not in moving} == {
        name: after[name] for name in after if name not in moving
    }
