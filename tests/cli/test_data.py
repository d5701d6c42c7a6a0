"""The demo data: the same every time, and with addresses that reach nobody."""

from __future__ import annotations

import csv

from outreach_async._cli._demo_contacts import demo_contacts
from outreach_async._cli._demo_world import create_demo_world


def test_the_demo_contacts_have_duplicates_errors_and_reserved_domains() -> None:
    assert demo_contacts() == demo_contacts()
    emails = [row["E-mail"].strip().lower() for row in csv.DictReader(demo_contacts().splitlines())]
    assert len(emails) > 3000
    assert 100 < len(emails) - len(set(emails)) < 300
    assert sum(not email for email in emails) >= 10
    domains = {email.rpartition("@")[2] for email in emails if email.count("@") == 1}
    assert {domain.rstrip(">").rpartition(".")[2] for domain in domains if "." in domain} == {"example"}


def test_the_embedded_service_starts_identically_each_time() -> None:
    assert create_demo_world().dump() == create_demo_world().dump()
