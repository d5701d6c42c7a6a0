"""What a run will do to a service, said before it does it."""

from __future__ import annotations

from typing import Final

from outreach_async.conformance.site import DOMAIN, Site

CONTACTS: Final = 64
"""Contacts that a run with writes creates at most."""


def plan(site: Site) -> str:
    """Say what a run will do."""
    if not site.writes:
        return f"It only reads, in workspace {site.workspace}: no contact is created."
    parts = [f"It creates up to {CONTACTS} contacts in workspace {site.workspace}, with addresses at {DOMAIN}."]
    parts.append("They stay: the interface has no way to delete one.")
    parts.append(f"Two join the campaign {site.campaign}, if it is a draft." if site.campaign else "None joins a campaign.")
    if site.gmail:
        parts.append("Two of them have addresses at gmail.com, with a hyphen, which Gmail gives nobody.")
    return " ".join(parts)
