"""The demo's data: as its recipe makes it, and at addresses where nobody can be written to."""

from __future__ import annotations

import csv
from importlib.resources import files

from support_demo_contacts import content

from outreach_async.cli.world import demo_world


def bundled() -> str:
    return (files("outreach_async.cli") / "data" / "contacts.csv").read_text(encoding="utf-8")


def test_the_bundled_contacts_are_what_their_recipe_makes() -> None:
    assert bundled() == content()


def test_the_bundled_contacts_have_repeats_faults_and_reserved_domains() -> None:
    emails = [row["E-mail"].strip().lower() for row in csv.DictReader(bundled().splitlines())]
    assert len(emails) > 3000
    assert 100 < len(emails) - len(set(emails)) < 300
    assert sum(not email for email in emails) >= 10
    domains = {email.rpartition("@")[2] for email in emails if email.count("@") == 1}
    assert {domain.rstrip(">").rpartition(".")[2] for domain in domains if "." in domain} == {"example"}


def test_the_embedded_service_is_the_same_at_every_start() -> None:
    assert demo_world().dump() == demo_world().dump()
