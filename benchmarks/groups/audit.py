"""The mailbox audit: CPU time compared with decoding, and the memory of a long audit over a real socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.audit_memory import peak
from benchmarks.groups.rounds import Bench, Job
from benchmarks.measuring import Figures, timed
from benchmarks.results import Table
from benchmarks.workload import BIG, Pages
from outreach_async.audit import check
from outreach_async.audit._evaluation import AuditState, Judgement
from outreach_async.audit._run import build_report
from outreach_async.audit.policy import Policy
from outreach_async.converters import OutreachConverter
from outreach_async.models import Mailbox, Page

_SECONDS: Final = 0.8
_PAGES: Final = 5
_NOW: Final = 1_780_000_000.0
_WORKSPACE: Final = "space_1"


def _works() -> dict[str, Callable[[], Any]]:
    """Return the work to measure on 10,000 mailboxes: decoding, checking each, and a complete audit."""
    kind, loads = Page[Mailbox], OutreachConverter().loads
    pages = Pages(BIG, _PAGES)
    bodies = [pages.body(number) for number in range(1, _PAGES + 1)]
    decoded: list[Page[Mailbox]] = [loads(body, kind) for body in bodies]

    def judge() -> object:
        state = AuditState([_WORKSPACE], Policy.default(), _NOW)
        for page in decoded:
            state.add_page(_WORKSPACE, page.data)
        return build_report(Judgement(state), state, [], {})

    def check_each() -> object:
        return [check(mailbox, None, _NOW) for page in decoded for mailbox in page.data]

    decode = "decoding", lambda: [loads(body, kind) for body in bodies]
    return dict([decode, ("check of each", check_each), ("the audit, to its report", judge)])


def measure_judging(row: str, seconds: float) -> Figures:
    """Measure one of them. Runs in the worker process."""
    return timed(_works()[row], seconds)


def audit(bench: Bench) -> list[Table]:
    """Measure an audit of 10,000 mailboxes compared with decoding them, and the peak memory of audits over real sockets."""
    time = Table("Auditing 10,000 mailboxes offline, every third with a finding", "CPU, us", ("decoding",))
    jobs = [Job(row, "CPU", measure_judging, {"row": row, "seconds": _SECONDS * bench.scale}) for row in _works()]
    bench.interleave(jobs, lambda job, figures: time.add(job.row, "CPU", figures["cpu"]))
    memory = Table("Peak memory of an audit over real sockets, all with findings", "MiB")
    for pages in (5, 50):
        memory.add("audit", f"{pages * BIG:,} mailboxes", (peak(pages * BIG, 1, "findings") - peak(1, 1)) / 1024)
    return [time, memory]
