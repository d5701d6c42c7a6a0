"""Audit in parts, in several processes or on several hosts, and merge the parts into one report.

A part can be pickled or stored as JSON. Run it again if its process died; a repeated part counts once. With Dask (extra `dask`),
each task reads one group of workspaces; `map` of a `ProcessPoolExecutor` works in the same way:

```python
import os
import time
from functools import partial

import anyio
from distributed import Client, LocalCluster
from outreach_async import OutreachClient
from outreach_async.audit import AuditPart, audit_part, merge


def read_part(spaces: list[str], at: float, salt: str) -> AuditPart:
    async def read() -> AuditPart:
        async with OutreachClient() as client:
            return await audit_part(client, spaces, at=at, salt=salt)

    return anyio.run(read)


if __name__ == "__main__":
    groups = [["space_1"], ["space_2"]]
    job = partial(read_part, at=time.time(), salt=os.urandom(16).hex())
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as dask,
    ):
        parts = dask.gather(dask.map(job, groups, retries=3))
    report = merge(parts, workspaces=[space for group in groups for space in group])
    print(report.mailboxes, "mailboxes, unreadable:", report.unreadable)  # -> 2 mailboxes, unreadable: ['space_2']
```

For several machines, pass the scheduler's address to `Client`, and set `OUTREACH_BASE_URL` in the environment of the workers.
If a worker dies, Dask runs its part again from the beginning, so choose groups of workspaces that take minutes rather than hours.
Dask shows task arguments, including the secret `salt`, to everybody who can reach the scheduler. All workers share the service's
rate limit: give each `OutreachClient` a `RedisRate`, or divide the limit among the workers.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Self, Unpack

import attrs
import msgspec

from outreach_async._plumbing import type_name
from outreach_async.audit._evaluation import AuditState, MailboxFacts
from outreach_async.audit._findings import Finding, Severity, Violation, build_finding
from outreach_async.audit._flagged import FIGURES, Flagged
from outreach_async.audit._reading import WorkspaceReading
from outreach_async.audit._report import Report
from outreach_async.audit._rules import UNREADABLE
from outreach_async.audit._run import AuditRun, PartOptions, build_report, require_names, require_workspace_ids
from outreach_async.audit._totals import digest64
from outreach_async.audit.campaigns import WorkspaceCampaigns
from outreach_async.audit.policy import Policy
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, shorten

PART_VERSION: Final = 1


@attrs.frozen(kw_only=True)
class WorkspacePart:
    """The data of one workspace: `data` has its mailboxes and findings. `campaigns` is `None` if the audit does not read them."""

    workspace: str
    complete: bool
    mailboxes: int
    campaigns: int | None = None
    data: bytes = attrs.field(repr=False)


class _Content(msgspec.Struct, kw_only=True):
    denied: bool
    errors: list[Finding]
    facts: list[MailboxFacts]
    flagged: list[Flagged]
    campaigns: WorkspaceCampaigns | None


@attrs.frozen(kw_only=True)
class AuditPart:
    """The result of `audit_part`: a value that can be pickled, compared and stored as JSON.

    A part stores healthy mailboxes as digests and numbers, without their addresses. Domains, server addresses, and mailboxes with
    findings are in plain text, as in a report. A part contains neither API keys nor the salt.

    Attributes:
        at: Time of the audit, in Unix seconds.
        policy, salt: Hashes of the rules of the policy, and of the salt; `merge` rejects parts that differ.
        workspaces: The workspaces, each with `workspace` (its id), `complete`, `mailboxes` and `campaigns` (the numbers read).

    Example:
        ```python
        part = await audit_part(client, ["space_1"], at=fake.now, salt="pepper")
        print(part.workspaces[0].mailboxes)  # -> 2
        ```
    """

    at: float
    policy: str
    salt: str
    workspaces: tuple[WorkspacePart, ...] = attrs.field(repr=lambda parts: str([part.workspace for part in parts]))

    def to_dict(self) -> dict[str, Any]:
        """Return the part as JSON-compatible values. `from_dict` converts these values back to a part.

        Example:
            ```python
            part = await audit_part(client, ["space_1"], at=fake.now, salt="pepper")
            print(len(json.dumps(part.to_dict())) < 2_000)  # -> True
            ```
        """
        return {"version": PART_VERSION, **msgspec.to_builtins(self)}

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Create a part from JSON values.

        Raises:
            InvalidRequest: The values are not a part, or have an unknown version.

        Example:
            ```python
            part = await audit_part(client, ["space_1"], at=fake.now, salt="pepper")
            print(AuditPart.from_dict(json.loads(json.dumps(part.to_dict()))) == part)  # -> True
            ```
        """
        if not isinstance(values, dict) or values.get("version") != PART_VERSION:
            got = f"version {shorten(repr(values.get('version')), 40)}" if isinstance(values, dict) else type_name(values)
            raise InvalidRequest(f"part: expected version {PART_VERSION}, got {got}; pass the output of `AuditPart.to_dict`")
        try:
            return msgspec.convert(values, cls)  # converts base64 strings to bytes
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"part: {error}; pass the output of `AuditPart.to_dict`") from None


async def audit_part(
    client: OutreachClient, workspaces: Iterable[str], *, at: float, salt: str, **options: Unpack[PartOptions]
) -> AuditPart:
    """Read and check some workspaces of an audit, with the options of `audit` without `clock` and `names`.

    `policy` and `campaigns` must be the same for all parts.

    Args:
        client: Client to read with. Its default workspace is ignored.
        workspaces: Ids of the workspaces of this part; a duplicate is read once.
        at: Time of the audit, in Unix seconds; the same for all parts.
        salt: Key for the mailbox digests; the same for all parts. Keep the salt secret: anyone who knows the salt can test
            whether a part contains an address.

    Raises:
        InvalidRequest: An argument is invalid.

    Example:
        ```python
        part = await audit_part(client, ["space_1"], at=fake.now, salt="pepper")
        print(merge([part], workspaces=["space_1", "space_2"]).unreadable)  # -> ['space_2']
        ```
    """
    given: Any = at
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise InvalidRequest(
            f"at: expected a time in Unix seconds, got {type_name(at)}; call time.time() once, and use the result for all parts"
        )
    given = salt
    if not isinstance(given, str) or not given:
        raise InvalidRequest("salt: expected a non-empty string; use the same random string for all parts")
    key = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=32).digest()  # hashed, because a key has a maximum length
    run = AuditRun(client, workspaces, clock=lambda: at, names=None, key=key, **options)  # a part has no names
    await run
    return build_part(run.state, run.workspaces)


def build_part(state: AuditState, readings: Iterable[WorkspaceReading]) -> AuditPart:
    """Build a part from the state of an audit that has read its workspaces."""
    return AuditPart(
        at=state.now,
        policy=_hash_rules(state.policy),
        salt=f"{digest64('outreach_async.audit part', state.key or b''):016x}",
        workspaces=tuple(_encode(state, place, reading) for place, reading in enumerate(readings)),
    )


def merge(
    parts: Iterable[AuditPart],
    *,
    workspaces: Iterable[str],
    policy: Policy | None = None,
    names: Mapping[str, str] | None = None,
) -> Report:
    """Merge parts into the report that one `audit` of all workspaces would return. Parts may be in any order and may be repeated.

    If several parts contain a workspace, the most complete reading is used. One that no part contains is reported as unreadable.

    Args:
        parts: The parts, at least one, with the same time, salt and policy.
        workspaces: Ids of all workspaces, in the order of the report.
        policy: The policy of the parts.
        names: Names of workspaces by id, as in `audit`.

    Raises:
        InvalidRequest: The parts differ, or one is damaged or contains another workspace.

    Example:
        ```python
        parts = [await audit_part(client, ["space_1"], at=fake.now, salt="pepper")] * 2
        report = merge(parts, workspaces=["space_1"])
        print(report == await audit(client, ["space_1"], clock=lambda: fake.now))  # -> True
        ```
    """
    spaces, rules, known = require_workspace_ids(workspaces), policy or Policy.default(), list(parts)
    _require_equal(known, rules)
    best = _most_complete(known, set(spaces))
    state, readings = AuditState(spaces, rules, known[0].at), list[WorkspaceReading]()
    # A part without workspaces does not show whether the audit reads campaigns.
    unread = WorkspaceCampaigns() if any(part.campaigns is not None for part in best.values()) else None
    for space in spaces:
        if space in best:
            readings.append(_add(state, best[space]))
        else:
            missing = build_finding(UNREADABLE, Violation("could not be read: no part contains this workspace"), space)
            readings.append(WorkspaceReading(space, 0, True, False, [missing], unread))
    return build_report(state, readings, require_names(names, spaces))


def _require_equal(parts: Sequence[AuditPart], policy: Policy) -> None:
    if not parts:
        raise InvalidRequest("parts: expected at least one part, got none; pass the results of `audit_part`")
    expected = {"policy": _hash_rules(policy), "at": parts[0].at, "salt": parts[0].salt}
    for part in parts:
        for name, value in expected.items():
            if (got := getattr(part, name)) != value:
                space = part.workspaces[0].workspace if part.workspaces else "no workspace"
                raise InvalidRequest(
                    f"parts: expected parts with {name} {value}, got {got} for {space}; use the same `{name}` for all parts"
                )


def _most_complete(parts: Iterable[AuditPart], workspaces: set[str]) -> dict[str, WorkspacePart]:
    best: dict[str, WorkspacePart] = {}
    reads_campaigns: set[bool] = set()
    for each in (each for part in parts for each in part.workspaces):
        reads_campaigns.add(each.campaigns is not None)
        if each.workspace not in workspaces:
            shown = shorten(repr(each.workspace), 80)
            raise InvalidRequest(f"parts: expected only workspaces of the audit, got {shown}; add this id to `workspaces`")
        # Equally complete readings are compared by their data, so that the order of the parts has no effect.
        best[each.workspace] = max(
            *(best.get(each.workspace, each), each),
            key=lambda part: (part.complete, part.mailboxes, part.campaigns or 0, part.data),
        )
    if len(reads_campaigns) > 1:
        raise InvalidRequest(
            "parts: expected campaigns in all parts or in no part, got parts with and without campaigns;"
            " use the same `campaigns` for all parts"
        )
    return best


def _hash_rules(policy: Policy) -> str:
    about = [[rule.id, rule.severity, rule.condition, rule.remedy, sorted(rule.thresholds.items())] for rule in policy.rules]
    return blake2b(json.dumps([attrs.asdict(policy.used), about]).encode(), digest_size=16).hexdigest()


def _encode(state: AuditState, place: int, reading: WorkspaceReading) -> WorkspacePart:
    content = _Content(
        denied=reading.denied,
        errors=list(reading.findings),
        facts=list(state.facts(place)),
        flagged=list(state.flagged[place]),
        campaigns=reading.campaigns,
    )
    # Unlike msgspec, `json` can encode the lone surrogates that a service may send.
    text = json.dumps(msgspec.to_builtins(content), separators=(",", ":"))
    return WorkspacePart(
        workspace=reading.workspace,
        complete=not reading.unreadable,
        mailboxes=reading.mailboxes,
        campaigns=None if reading.campaigns is None else len(reading.campaigns.rows),
        data=zlib.compress(text.encode()),
    )


def _add(state: AuditState, part: WorkspacePart) -> WorkspaceReading:
    try:
        content = msgspec.convert(json.loads(zlib.decompress(part.data)), _Content)
        state.add_facts(part.workspace, content.facts)
        place = state.workspaces.index(part.workspace)
        for mailbox in content.flagged:
            _require_known(mailbox, len(state.rules), len(state.columns[place].digests))
            state.flagged[place].append(mailbox)
    except (zlib.error, ValueError, OverflowError) as error:
        raise InvalidRequest(f"parts: {part.workspace}: damaged ({type(error).__name__}); run `audit_part` again") from None
    campaigns = None if part.campaigns is None else content.campaigns
    return WorkspaceReading(part.workspace, part.mailboxes, not part.complete, content.denied, content.errors, campaigns)


def _require_known(mailbox: Flagged, rules: int, rows: int) -> None:
    """Raise an error if a mailbox refers to a rule or a row that does not exist, which would be noticed only later."""
    known = 0 <= mailbox.row < rows and len(mailbox.figures) == len(FIGURES) and mailbox.violations
    if not known or not all(0 <= each.rule < rules and 0 <= each.rank < len(Severity) for each in mailbox.violations):
        raise ValueError("a mailbox with findings")
