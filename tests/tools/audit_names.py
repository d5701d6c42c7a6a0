"""Show that the memory use of an audit does not grow with the number of distinct domains and servers.

Run in the folder `tests`: python -m tools.audit_names [mailboxes] [kept]
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

from support.audit import NOW, mailbox

from outreach_async._vocabulary import MailboxType
from outreach_async.audit import Policy
from outreach_async.audit._evaluation import AuditState
from outreach_async.audit._totals import MAX_KEPT
from outreach_async.models import Mailbox

_PAGE = 2_000
_LINES = 8


def pages(mailboxes: int, size: int = _PAGE) -> Iterator[list[Mailbox]]:
    """Yield pages of healthy mailboxes. Each mailbox has a separate domain and server."""
    for first in range(0, mailboxes, size):
        yield [
            mailbox(id=f"mailbox_{n}", email=f"a@outreach-domain{n}.example", server_ip=f"server-{n}", type=MailboxType.SMTP_IMAP)
            for n in range(first, first + size)
        ]


def main() -> None:
    """Audit the pages of two workspaces, and print the peak memory at regular intervals."""
    mailboxes, kept = (int(given) for given in (sys.argv[1:] + ["6000000", str(MAX_KEPT)][len(sys.argv) - 1 :]))
    state = AuditState(["space_1", "space_2"], Policy.default(), NOW, most=kept)
    for number, page in enumerate(pages(mailboxes), 1):
        state.add_page(state.workspaces[number % 2], page)
        if number % max(1, mailboxes // _PAGE // _LINES) == 0:
            mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            found = state.totals["domain"].distinct
            print(f"{number * _PAGE:,} mailboxes: {mib:.0f} MiB, {found:,} domains estimated", flush=True)  # noqa: T201 - a report is printed


if __name__ == "__main__":
    main()
