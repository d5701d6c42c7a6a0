"""Workspace fields are requested only if a file needs them."""

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


async def test_a_file_of_known_columns_needs_no_lookup(service: FakeService, client: OutreachClient) -> None:
    columns = await columns_for(client, ["E-mail", "custom_4", "Rest"], {"Rest": "ignore"})
    assert columns.codes == ("email", "custom_4", None)
    assert len(service.requests) == 0


@pytest.mark.parametrize(
    ("headers", "overrides"), [(["email", "plan", "LinkedIn"], {}), (["email", "Plan", "x"], {"x": "linkedin"})]
)
async def test_workspace_fields_are_looked_up_once(
    service: FakeService, client: OutreachClient, headers: list[str], overrides: dict[str, str]
) -> None:
    columns = await columns_for(client, headers, overrides)
    assert columns.codes == ("email", "custom_1", "linkedin")
    assert len(service.requests) == 1


async def test_without_a_client_nothing_is_looked_up() -> None:
    assert (await columns_for(None, ["email"])).codes == ("email",)
    with pytest.raises(InvalidRequest, match="unknown column 'plan'"):
        await columns_for(None, ["email", "plan"])


async def test_a_refused_lookup_raises_the_error_of_the_service(client: OutreachClient) -> None:
    with pytest.raises(StatusError):
        await columns_for(client.with_options(workspace="space_none"), ["email", "plan"])
