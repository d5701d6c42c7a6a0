"""The demo data: identical to the output of its generator, and with addresses that reach nobody."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest
from support.demo_contacts import content
from support.fake import document, page

from outreach_async._cli.commands.serving import WORKSPACES, create_demo_world


def bundled() -> str:
    return (files("outreach_async._cli") / "data" / "contacts.csv").read_text(encoding="utf-8")


def test_the_bundled_contacts_are_what_their_generator_writes() -> None:
    assert bundled() == content()


def test_the_bundled_contacts_have_duplicates_errors_and_reserved_domains() -> None:
    emails = [row["E-mail"].strip().lower() for row in csv.DictReader(bundled().splitlines())]
    assert len(emails) > 3000
    assert 100 < len(emails) - len(set(emails)) < 300
    assert sum(not email for email in emails) >= 10
    domains = {email.rpartition("@")[2] for email in emails if email.count("@") == 1}
    assert {domain.rstrip(">").rpartition(".")[2] for domain in domains if "." in domain} == {"example"}


def test_the_embedded_service_starts_identically_each_time() -> None:
    assert create_demo_world().dump() == create_demo_world().dump()


@pytest.mark.parametrize("workspace", WORKSPACES)
def test_some_mailboxes_of_each_embedded_workspace_have_no_domain_ip(workspace: str) -> None:
    boxes = document(page(create_demo_world(), "/mailboxes", workspace=workspace, display=2000))["data"]
    assert {box["domain_ip"] is None for box in boxes} == {True, False}
