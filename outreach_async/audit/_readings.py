"""Collect what an audit reads, in the columns of a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
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
        self._records: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)

    def __repr__(self) -> str:
        sizes = {
            entity.table: sum(len(found) for (_, table), found in self._records.items() if table == entity.table)
            for entity in (MAILBOX, CAMPAIGN)
        }
        return f"<{type(self).__name__} {' '.join(f'{name}={size}' for name, size in sizes.items())}>"

    def add_mailboxes(self, workspace: str, mailboxes: Iterable[Mailbox]) -> None:
        """Add a page of a workspace's mailboxes. The audit calls this method.

        Example:
            ```python
            readings = Readings()
            readings.add_mailboxes("space_1", (await client.mailboxes.list()).data)
            print(readings)  # -> <Readings mailboxes=2 campaigns=0>
            ```
        """
        self._records[workspace, MAILBOX.table] += [
            (
                (
                    *(
                        storable(workspace),
                        storable(box.id),
                        storable(box.email),
                        _domain(box.email),
                        storable(box.type),
                        storable(box.status),
                    ),
                    *(storable(box.server_ip), int(box.spf), int(box.dkim), int(box.dmarc), figure_or_none(box.created_at)),
                ),
                tuple(figure_or_none(getattr(box, name)) for name in MAILBOX.figures),
            )
            for box in mailboxes
        ]

    def add_campaign(self, row: CampaignRow, campaign: Campaign, steps: Sequence[Step] | None) -> None:
        """Add a campaign with its steps; `steps` is `None` if they were not read. The audit calls this method.

        Example:
            ```python
            report = await audit(client, ["space_1"], campaigns=True)
            readings, (campaign,) = Readings(), (await client.campaigns.list()).data
            readings.add_campaign(report.campaigns.rows[0], campaign, None)
            print(readings)  # -> <Readings mailboxes=0 campaigns=1>
            ```
        """
        given = {name: getattr(row, name, None) for name in CAMPAIGN.figures}
        given |= {"opens_num": campaign.opens_num, "ends": None if row.end is None else round(row.end)}
        # The last label is the planned end, which depends on earlier readings.
        labels = storable(row.workspace), storable(row.id), storable(row.name), storable(row.status), row.created, None
        self._records[row.workspace, CAMPAIGN.table].append((labels, tuple(map(figure_or_none, given.values()))))
        self._records[row.workspace, STEP.table] += [_step_record(row, step) for step in steps or ()]


def records_of(readings: Readings, workspace: str, entity: Entity) -> list[Record]:
    """Return the records of a workspace."""
    return readings._records.get((workspace, entity.table), [])  # noqa: SLF001 - users of a `Readings` have no use for it


def _step_record(row: CampaignRow, step: Step) -> Record:
    labels = storable(row.workspace), storable(row.id), storable(step.id), figure_or_none(step.order), storable(step.status)
    sums = (_total(getattr(each, name) for each in step.templates)
            for name in ("sent", "opened_num", "replied_num", "unsubscribed_num"))  # fmt: skip
    return labels, (*sums, *(figure_or_none(getattr(step, name)) for name in ("left_to_send", "already_sent", "out_of")))


def _total(values: Iterable[Number]) -> Number | None:
    known = [figure_or_none(value) for value in values]
    return None if None in known else figure_or_none(sum(value or 0 for value in known))


def _domain(email: str) -> str | None:
    domain = email_domain(email)
    return None if domain is None else storable(domain)


def storable(value: object) -> str:
    """Return a string that SQLite can store: a service may send lone surrogates."""
    return str(value).encode("utf-8", "backslashreplace").decode()
