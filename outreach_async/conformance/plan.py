"""Describe what a run will do, before it starts."""

from __future__ import annotations

from typing import Final

from outreach_async.conformance.site import DOMAIN, Site

CONTACTS: Final = 64
"""Most contacts created by a run with writes."""


def plan(site: Site) -> str:
    """Return a description of what a run will do."""
    if not site.writes:
        return f"It is read-only, in workspace {site.workspace}. It creates no contacts."
    parts = [f"It creates up to {CONTACTS} contacts in workspace {site.workspace}, with addresses at {DOMAIN}."]
    parts.append("They are permanent: the interface has no operation that deletes a contact.")
    parts.append(f"Two join the campaign {site.campaign} if it is a draft." if site.campaign else "None joins a campaign.")
    if site.gmail:
        parts.append("Two have addresses at gmail.com with a hyphen, which Gmail never assigns.")
    return " ".join(parts)
