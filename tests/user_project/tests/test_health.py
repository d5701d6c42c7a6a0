import json
from pathlib import Path

import pytest
from outreach_async import OutreachClient
from outreach_async.audit import Policy
from outreach_async.fake import FakeService

from crm_sync.health import check_workspaces, urgent


@pytest.mark.anyio
async def test_a_mailbox_without_spf_is_urgent_until_it_is_fixed(
    outreach_client: OutreachClient, outreach_fake: FakeService, outreach_workspace: str, tmp_path: Path
) -> None:
    healthy, broken = outreach_fake.add_mailboxes(outreach_workspace, 2)
    outreach_fake.set_mailbox(broken, spf=False)
    report = await check_workspaces(outreach_client, [outreach_workspace], Policy.default(), tmp_path)
    assert [(finding.mailbox, finding.rule) for finding in urgent(report)] == [(broken, "OA101")]
    assert healthy not in {finding.mailbox for finding in urgent(report)}
    outreach_fake.set_mailbox(broken, spf=True)
    report = await check_workspaces(outreach_client, [outreach_workspace], Policy.default(), tmp_path)
    assert report.diff is not None
    assert [finding.rule for finding in report.diff.resolved] == ["OA101"]
    assert json.loads((tmp_path / "health.json").read_text(encoding="utf-8"))["mailboxes"] == 2
    assert "<html" in (tmp_path / "health.html").read_text(encoding="utf-8")
