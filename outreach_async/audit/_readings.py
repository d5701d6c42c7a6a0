"""Collect what an audit reads, in the columns of a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeAlias

from outreach_async.audit._conditions import email_domain
from outreach_async.audit._history_tables import CAMPAIGN, MAILBOX, STEP, Entity
from outreach_async.audit._values import figure_or_none
from outreach_async.audit.campaigns import CampaignRow
from outreach_async.models import Campaign, Mailbox, Number, Step

Record: TypeAlias = tuple[tuple[Any, ...], tuple[Number | None, ...]]
"""The labels and the figures of a thing that was read."""


class Readings:
    """Collects the mailboxes, campaigns and steps that an audit reads, for `History.append`.

    A report contains only the mailboxes with findings. Pass an instance as `readings` to one call of `audit` or `stream`. It
    takes about 600 bytes for each mailbox.

    Example:
        ```python
        readings = Readings()
        report = await audit(client, ["space_1"], readings=readings)
        print(readings)  # -> <Readings mailboxes=2 campaigns=0>
        ```
    """

    def __init__(self) -> None:
        self._records: defaultdict[tuple[str, Entity], list[Record]] = defaultdict(list)

    def __repr__(self) -> str:
        mailboxes, campaigns = (
            sum(len(found) for (_, kind), found in self._records.items() if kind is entity) for entity in (MAILBOX, CAMPAIGN)
        )
        return f"<{type(self).__name__} mailboxes={mailboxes} campaigns={campaigns}>"


def records_of(readings: Readings, workspace: str, entity: Entity) -> list[Record]:
    """Return the records of a workspace, a list to which the audit appends."""
    return readings._records[workspace, entity]  # noqa: SLF001 - users of a `Readings` have no use for it


def record_mailboxes(readings: Readings, workspace: str, mailboxes: Iterable[Mailbox]) -> None:
    records = records_of(readings, workspace, MAILBOX)
    for box in mailboxes:
        texts = (box.email, email_domain(box.email), box.type, box.status, box.server_ip)
        records.append(
            (
                (
                    *(storable(workspace), storable(box.id)),
                    *(None if text is None else storable(text) for text in texts),
                    *(int(box.spf), int(box.dkim), int(box.dmarc), figure_or_none(box.created_at)),
                ),
                tuple(figure_or_none(getattr(box, name)) for name in MAILBOX.figures),
            )
        )


def record_campaign(readings: Readings, row: CampaignRow, campaign: Campaign, steps: Iterable[Step] | None) -> None:
    """Record a campaign with its steps; `steps` is `None` if they were not read."""
    given = {name: getattr(row, name, None) for name in CAMPAIGN.figures}
    given |= {"opens_num": campaign.opens_num, "ends": None if row.end is None else round(row.end)}
    # The last label is the planned end, which depends on earlier readings.
    labels = storable(row.workspace), storable(row.id), storable(row.name), storable(row.status), row.created, None
    records_of(readings, row.workspace, CAMPAIGN).append((labels, tuple(map(figure_or_none, given.values()))))
    records_of(readings, row.workspace, STEP).extend(_step_record(row, step) for step in steps or ())


def _step_record(row: CampaignRow, step: Step) -> Record:
    labels = storable(row.workspace), storable(row.id), storable(step.id), figure_or_none(step.order), storable(step.status)
    sums = (_total(getattr(each, name) for each in step.templates)
            for name in ("sent", "opened_num", "replied_num", "unsubscribed_num"))  # fmt: skip
    return labels, (*sums, *(figure_or_none(getattr(step, name)) for name in ("left_to_send", "already_sent", "out_of")))


def _total(values: Iterable[Number]) -> Number | None:
    known = [figure_or_none(value) for value in values]
    return None if None in known else figure_or_none(sum(value or 0 for value in known))


def storable(value: object) -> str:
    """Return a string that SQLite can store: a service may send lone surrogates."""
    return str(value).encode("utf-8", "backslashreplace").decode()
