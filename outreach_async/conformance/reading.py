"""Knobs that show when lists are asked for oddly (rules P3 to P8, E2 and A3). Nothing is written."""

from __future__ import annotations

from typing import Any, Final

from outreach_async.conformance.findings import Finding, among, seen, unseen
from outreach_async.conformance.site import Dialogue, Site, Unclear, accepted, document, number, rows, served
from outreach_async.conformance.survey import MAX_MAILBOXES
from outreach_async.fake.behaviour import HeaderAuth
from outreach_async.transport.wire import Response

FAR: Final = 5
"""Pages past the end that are asked for."""

MOST: Final = 10_001
"""Campaigns a page that are asked for, to see whether there is a maximum."""

_MAXIMA: Final = (100, 101, 2000, 2001)
"""Where a maximum of campaigns a page is looked for first."""


def past_end(site: Site, first: int) -> Dialogue[Finding]:
    """Ask for a page past the end (rule P8)."""
    head = served((yield site.page("mailboxes", first, 1)))
    far = first + number(head, "total_pages") + FAR
    return read_past_end((yield site.page("mailboxes", far, 1)), far)


def read_past_end(answer: Response, far: int) -> Finding:
    """Read the answer to a page past the end."""
    if not accepted(answer):
        return seen("error", f"page {far}, past the end, was refused with {answer.status}")
    said = document(answer)
    current = number(said, "current_page")
    if rows(said) or current != far:
        return seen("clamp", f"page {far}, past the end, was served as page {current}")
    return seen("empty", f"page {far}, past the end, was served empty")


def bad_number(site: Site, first: int) -> Dialogue[Finding]:
    """Ask with numbers that are none, or out of range (rule P5)."""
    verdicts = {}
    for name, page, display in (
        ("display=abc", first, "abc"),
        ("display=0", first, 0),
        ("display=-1", first, -1),
        ("page=abc", "abc", 1),
        ("page=-1", -1, 1),
    ):
        verdicts[name] = accepted((yield site.page("mailboxes", page, display)))
    taken = [name for name, verdict in verdicts.items() if verdict]
    refused = [name for name in verdicts if name not in taken]
    if taken and refused:
        return unseen(f"{', '.join(taken)} served, but {', '.join(refused)} refused: neither reading")
    return seen("default", f"{', '.join(taken)} served") if taken else seen("reject", f"{', '.join(refused)} refused")


def over_max(site: Site, first: int) -> Dialogue[Finding]:
    """Ask for more mailboxes a page than is allowed (rule P6)."""
    answer = yield site.page("mailboxes", first, MAX_MAILBOXES + 1)
    wanted = f"mailboxes, display={MAX_MAILBOXES + 1}:"
    if not accepted(answer):
        return seen("reject", f"{wanted} refused with {answer.status}")
    said = document(answer)
    count, total = len(rows(said)), number(said, "total_found")
    if count > MAX_MAILBOXES:
        return seen("serve", f"{wanted} {count} served")
    if total > MAX_MAILBOXES:
        return seen("clamp", f"{wanted} {count} of {total} served")
    return among(("clamp", "serve"), f"{wanted} not refused; there are {total} mailboxes, too few to tell which")


def campaign_max_display(site: Site, first: int, over: Finding) -> Dialogue[Finding]:
    """Look for the maximum of campaigns a page (rule P7), knowing what happens over a maximum."""
    if over.is_seen_as("serve"):
        return unseen("more than the maximum is served, so that a maximum would not show")
    answer = yield site.page("campaigns", first, MOST)
    wanted = f"campaigns, display={MOST}:"
    if not accepted(answer):
        most = yield from _largest_accepted(site, first)
        how = f"campaigns, display={most}: served; one more: refused"
        return seen(most, how) if "reject" in (over.possible or ("reject",)) else _differing(how)
    said = document(answer)
    count, total = len(rows(said)), number(said, "total_found")
    if total and not count:
        raise Unclear(f"{wanted} none of {total} served")
    if count < total:
        how = f"{wanted} {count} of {total} served"
        return _differing(how) if over.is_seen_as("reject") else seen(count, how)
    if over.is_seen_as("reject"):
        return seen(None, f"{wanted} served")
    left = [maximum for maximum in (None, 2000, 100) if maximum is None or maximum >= total]
    return among(left, f"{wanted} all {total} served, so that a maximum of {max(total, 1)} or more would not show")


def _differing(how: str) -> Finding:
    return unseen(f"{how}; for mailboxes it is another way, and Behaviour has one for both")


def _largest_accepted(site: Site, first: int) -> Dialogue[int]:
    low, high = 0, MOST
    while high - low > 1:
        middle = next((place for place in _MAXIMA if low < place < high), (low + high) // 2)
        if accepted((yield site.page("campaigns", first, middle))):
            low = middle
        else:
            high = middle
    if not low:
        raise Unclear("campaigns were refused whatever the display")
    return low


def over_by_campaigns(over: Finding, maximum: Finding) -> Finding:
    """Settle between `clamp` and `serve` by campaigns, where there were too few mailboxes."""
    if "clamp" in over.possible and not over.seen and maximum.seen and maximum.possible[0] is not None:
        return seen("clamp", maximum.how)
    return over


def error_renderer(site: Site) -> Dialogue[Finding]:
    """Ask for what must be refused, and look at the refusal (rule E2)."""
    why = "nothing that was asked was refused"
    for request in (
        site.steps(f"camp_conformance{site.nonce}"),
        site.get(f"/workspaces/space_conformance{site.nonce}/all-fields"),
        site.get("/campaigns", workspace=site.workspace),
    ):
        answer = yield request
        if not accepted(answer):
            return read_refusal(answer)
    return unseen(why)


def read_refusal(answer: Response) -> Finding:
    """Tell how a refusal is rendered."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    said = document(answer)
    if isinstance(said, dict):
        return _read_json_refusal(answer.status, said)
    if "html" in kind or answer.body.lstrip()[:1] == b"<":
        return seen("html", f"a refusal with {answer.status} is a web page")
    if kind == "text/plain":
        return seen("text", f"a refusal with {answer.status} is plain text")
    return unseen(f"a refusal with {answer.status} is neither JSON nor text")


def _read_json_refusal(status: int, said: dict[str, Any]) -> Finding:
    names = ", ".join(sorted(said)[:8])
    how = f"a refusal with {status} is an object of {names}"
    if isinstance(said.get("error"), dict):
        return seen("nested" if status >= 400 else "200_with_error", how)  # noqa: PLR2004 - where refusals begin
    if isinstance(said.get("message"), str):
        return seen("flat", how)
    return unseen(f"{how}, which is no form that has a name")


def auth(site: Site) -> Dialogue[Finding]:
    """Ask without each header field that the site was given (rule A3); without any, look for a challenge."""
    for name in site.headers:
        left = {other: value for other, value in site.headers.items() if other != name}
        if not accepted((yield Site(site.workspace, headers=left, nonce=site.nonce).fields())):
            scheme = site.headers[name].rpartition(" ")[0]
            return seen(HeaderAuth(name.lower(), scheme), f"without the header {name} the fields were refused")
    answer = yield site.fields()
    if accepted(answer):
        return seen(None, "the fields were served without a credential in a header")
    challenge = answer.headers.get("www-authenticate", "").partition(" ")[0]
    if not challenge:
        return unseen("the fields were refused; is a credential missing? Give it as a header")
    return seen(HeaderAuth(scheme=challenge), "the fields were refused with a challenge")
