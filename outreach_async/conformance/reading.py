"""Measure the knobs that unusual list requests reveal (rules P3 to P8, E2 and A3). Read-only."""

from __future__ import annotations

from typing import Any, Final

from outreach_async.conformance.findings import Finding, among, seen, unseen
from outreach_async.conformance.site import Dialogue, Site, Unclear, accepted, document, number, rows, served
from outreach_async.conformance.survey import MAX_MAILBOXES
from outreach_async.fake.behaviour import HeaderAuth
from outreach_async.transport.wire import Response

FAR: Final = 5
"""How many pages past the end to request."""

MOST: Final = 10_001
"""The `display` of campaigns requested to find out whether there is a maximum."""

_MAXIMA: Final = (100, 101, 2000, 2001)
"""The values of `display` at which to look for a maximum first."""


def past_end(site: Site, first: int) -> Dialogue[Finding]:
    """Request a page past the end (rule P8)."""
    head = served((yield site.page("mailboxes", first, 1)))
    far = first + number(head, "total_pages") + FAR
    return read_past_end((yield site.page("mailboxes", far, 1)), far)


def read_past_end(answer: Response, far: int) -> Finding:
    """Interpret the response to a page past the end."""
    if not accepted(answer):
        return seen("error", f"page {far}, past the end, was refused with {answer.status}")
    said = document(answer)
    current = number(said, "current_page")
    if rows(said) or current != far:
        return seen("clamp", f"page {far}, past the end, was served as page {current}")
    return seen("empty", f"page {far}, past the end, was served empty")


def bad_number(site: Site, first: int) -> Dialogue[Finding]:
    """Request lists with invalid or out-of-range numbers (rule P5)."""
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
        return unseen(f"{', '.join(taken)} served, but {', '.join(refused)} refused: matches no value of the knob")
    return seen("default", f"{', '.join(taken)} served") if taken else seen("reject", f"{', '.join(refused)} refused")


def over_max(site: Site, first: int) -> Dialogue[Finding]:
    """Request more mailboxes per page than allowed (rule P6)."""
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
    return among(("clamp", "serve"), f"{wanted} not refused; there are {total} mailboxes, too few to decide")


def campaign_max_display(site: Site, first: int, over: Finding) -> Dialogue[Finding]:
    """Find the maximum of campaigns per page (rule P7), given what happens above a maximum."""
    if over.is_seen_as("serve"):
        return unseen("more than the maximum is served, so a maximum cannot be observed")
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
    return among(left, f"{wanted} all {total} served, so a maximum of {max(total, 1)} or more cannot be observed")


def _differing(how: str) -> Finding:
    return unseen(f"{how}; mailboxes behave differently, but Behaviour has one knob for both")


def _largest_accepted(site: Site, first: int) -> Dialogue[int]:
    low, high = 0, MOST
    while high - low > 1:
        middle = next((place for place in _MAXIMA if low < place < high), (low + high) // 2)
        if accepted((yield site.page("campaigns", first, middle))):
            low = middle
        else:
            high = middle
    if not low:
        raise Unclear("campaigns were refused with every display")
    return low


def over_by_campaigns(over: Finding, maximum: Finding) -> Finding:
    """Decide between `clamp` and `serve` from campaigns if there were too few mailboxes."""
    if "clamp" in over.possible and not over.seen and maximum.seen and maximum.possible[0] is not None:
        return seen("clamp", maximum.how)
    return over


def error_renderer(site: Site) -> Dialogue[Finding]:
    """Send requests that must be refused, and interpret the first refusal (rule E2)."""
    why = "no request was refused"
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
    """Return the format of a refusal."""
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
    return unseen(f"{how}, which matches no value of the knob")


def auth(site: Site) -> Dialogue[Finding]:
    """Omit each of the site's header fields in turn (rule A3). If there are none, look for a challenge."""
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
        return unseen("the fields were refused; if a credential is missing, pass it as a header")
    return seen(HeaderAuth(scheme=challenge), "the fields were refused with a challenge")
