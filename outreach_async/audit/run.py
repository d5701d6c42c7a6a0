"""`audit`: workspaces -> mailboxes -> findings -> report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from outreach_async.audit.findings import Finding
from outreach_async.audit.judging import Seen, domain_facts, judge
from outreach_async.audit.reading import Reading, findings_of, read_all
from outreach_async.audit.report import Report
from outreach_async.audit.scores import score
from outreach_async.checks import require_display
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.vocabulary import ID_PREFIXES, MAX_MAILBOX_DISPLAY

_DENIALS: Final = frozenset({401, 403})


async def audit(client: OutreachClient, workspaces: Iterable[str], *, display: int = MAX_MAILBOX_DISPLAY) -> Report:
    """Read and judge every mailbox of the workspaces, workspaces and pages side by side under the client's own limiter.

    What cannot be read is a finding, and the rest is judged.

    Args:
        client: Where to read. Its own workspace plays no part.
        workspaces: Ids of the workspaces; a repeated one is read once.
        display: Mailboxes per page, at most 2,000 (section "List mailboxes" of the interface).

    Raises:
        InvalidRequest: There is no workspace, one is no text or an API key, or `display` can never be right.
    """
    ids = _ids(workspaces)
    readings = await read_all(client, ids, display=require_display("display", display, mailboxes=True))
    return report_on(readings)


def _ids(workspaces: Iterable[str]) -> list[str]:
    given = [workspaces] if isinstance(workspaces, str) else list(workspaces)
    if not given:
        raise InvalidRequest("workspaces: there is none to audit; pass at least one id")
    if not all(isinstance(workspace, str) for workspace in given):
        raise InvalidRequest("workspaces: expected texts; pass ids such as 'space_1'")
    if any(workspace.startswith(ID_PREFIXES["owner_key"]) for workspace in given):  # a finding would print it
        raise InvalidRequest("workspaces: one looks like an API key; pass ids such as 'space_1'")
    return list(dict.fromkeys(given))


def report_on(readings: Sequence[Reading]) -> Report:
    """Judge what was read; pure."""
    boxes = {reading.workspace: [Seen(reading.workspace, mailbox) for mailbox in reading.mailboxes] for reading in readings}
    seen = list(chain.from_iterable(boxes.values()))
    facts = domain_facts(seen)
    findings: list[Finding] = []
    for reading in readings:
        findings += chain.from_iterable(judge(box, facts.get(box.domain or "")) for box in boxes[reading.workspace])
        findings += findings_of(reading)
    errors = {reading.workspace: reading.error for reading in readings if reading.error is not None}
    return Report(
        workspaces=list(boxes),
        mailboxes=len(seen),
        unreadable=list(errors),
        findings=findings,
        scores=score(seen, findings),
        denied=len(errors) == len(readings) and all(error.status_code in _DENIALS for error in errors.values()),
    )
