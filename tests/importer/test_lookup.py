"""Asking the workspace for its fields only if a file needs that."""

from __future__ import annotations

import pytest

from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, StatusError
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.importer import columns_for


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.add_workspace("space_1", custom_fields=["Plan"], extra_fields={"linkedin": "LinkedIn"})
    return service


@pytest.fixture
def client(service: FakeService) -> OutreachClient:
    return OutreachClient(transport=FakeTransport(service), workspace="space_1")


async def test_a_file_of_known_columns_asks_nothing(service: FakeService, client: OutreachClient) -> None:
    columns = await columns_for(client, ["E-mail", "custom_4", "Rest"], {"Rest": "ignore"})
    assert columns.codes == ("email", "custom_4", None)
    assert len(service.requests) == 0


@pytest.mark.parametrize(
    ("headers", "overrides"), [(["email", "plan", "LinkedIn"], {}), (["email", "Plan", "x"], {"x": "linkedin"})]
)
async def test_columns_of_the_workspace_are_looked_up_once(
    service: FakeService, client: OutreachClient, headers: list[str], overrides: dict[str, str]
) -> None:
    columns = await columns_for(client, headers, overrides)
    assert columns.codes == ("email", "custom_1", "linkedin")
    assert len(service.requests) == 1


async def test_without_a_client_nobody_is_asked() -> None:
    assert (await columns_for(None, ["email"])).codes == ("email",)
    with pytest.raises(InvalidRequest, match="unknown column 'plan'"):
        await columns_for(None, ["email", "plan"])


async def test_a_lookup_that_is_refused_is_the_services_refusal(client: OutreachClient) -> None:
    with pytest.raises(StatusError):
        await columns_for(client.with_options(workspace="space_none"), ["email", "plan"])
