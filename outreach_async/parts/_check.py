"""Check the rows of a plan before anything is sent, as the command `import` checks a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from outreach_async import Outcome
from outreach_async._plumbing import unsent_outcome
from outreach_async.errors import Excluded, OutreachError
from outreach_async.importer import CheckPolicy, MappedFile, Preflight, Row, RowFinding, RowOutcome
from outreach_async.models import Campaign
from outreach_async.parts._planning import ImportPlan, choose_rows, create_targets, find_people, open_piece
from outreach_async.parts._stored_files import require_version

OnUnsent: TypeAlias = Callable[[MappedFile, RowOutcome], object]
OnFinding: TypeAlias = Callable[[MappedFile, int, RowFinding, Sequence[str]], object]


async def check(
    made: ImportPlan,
    *,
    workspace: str | None = None,
    list_campaigns: Callable[[str], Iterable[Campaign]] | None = None,
    on_unsent: OnUnsent | None = None,
    on_progress: Callable[[int], object] | None = None,
    on_finding: OnFinding | None = None,
) -> Preflight:
    r"""Read all files of a plan in this process, and return what `import_part` would not send, and the findings.

    Nothing is sent. The rows are read as the parts read them: each part judges its rows in the same way.

    Args:
        made: The plan.
        workspace, list_campaigns: As for `plan`. Without them, the names of campaigns are unknown, so that rows with one count as
            rejected.
        on_unsent: Function that receives each row that is never sent, with its file.
        on_progress: Function that receives the number of rows so far.
        on_finding: Function that receives each finding, as for `Preflight`; `FindingsFile.add` is one.

    Raises:
        InvalidRequest: A file has changed since the import was planned, or cannot be read.
        OutreachError: The campaigns that rows name could not be listed.

    Example:
        ```python
        Path("may.csv").write_text("E-mail,Unsubscribed\nann@company.example,\n")
        Path("june.csv").write_text("E-mail,Unsubscribed\nann@company.example,yes\nbo@company.example,\n")
        found = await check(plan(["may.csv", "june.csv"]))
        print(found.rows, found.excluded, found.sent)  # -> 3 2 1
        ```
    """
    options = made.options
    targets, policy = create_targets(options, workspace, options.workspaces, list_campaigns), CheckPolicy.of(options.checks)
    file: MappedFile

    def tell(row: Row, error: OutreachError) -> None:
        if on_unsent is not None:
            status = Outcome.EXCLUDED if isinstance(error, Excluded) else Outcome.REJECTED
            on_unsent(file, RowOutcome.of(file.file, unsent_outcome(0, row, status, error)))

    checked = Preflight(repeats=options.repeats, on_unsent=tell, on_progress=on_progress, on_finding=on_finding)
    for part in made.parts:
        people = find_people(part)
        for piece in part.pieces:
            planned, opened = open_piece(part, piece)
            file, name = MappedFile(opened, planned.columns, policy, targets, people), None
            if len(made.files) > 1:
                name = planned.location
            await checked.add(file, name=name, chosen=choose_rows(part, piece), distinct=not part.repeated)
            require_version(planned.location, planned.version)
    return checked.finish()
