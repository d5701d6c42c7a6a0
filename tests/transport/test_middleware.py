"""Middleware: it forwards all that the wrapped transport has, and what its subclass does not define."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from support.fuzz import client_of
from support.transport import Script, status
from support.transports import GET, OWN, Make, over

from outreach_async import Middleware, Progress, StatusError

NAMES = ("max_in_flight", "secrets", "base_url", "proxy")


@over(*OWN)
async def test_the_attributes_are_those_of_the_wrapped_transport(make: Make) -> None:
    inner: Any = make("https://user:password@api.example/v1", max_in_flight=3)
    outer = Middleware(Middleware(inner))
    assert [getattr(outer, name) for name in NAMES] == [getattr(inner, name) for name in NAMES]
    assert "password" in outer.secrets
    assert outer.drop_idle == inner.drop_idle
    assert repr(outer) == f"<Middleware over <Middleware over {inner!r}>>"
    await outer.aclose()
    with pytest.raises(Exception, match="closed"):
        await inner.send(GET, Progress())


async def test_a_wrapped_transport_without_attributes_has_harmless_ones() -> None:
    outer = Middleware(Script(status(204)))
    assert [getattr(outer, name) for name in NAMES] == [None, (), None, None]
    outer.drop_idle()
    assert (await outer.send(GET, Progress())).status == 204


async def test_any_other_attribute_is_missing_also_before_it_is_made() -> None:
    outer: Any = Middleware(Script(status(204)))
    with pytest.raises(AttributeError, match="'Middleware' object has no attribute 'seed'"):
        outer.seed  # noqa: B018 - reading it raises
    assert copy.copy(outer).inner is outer.inner
    with pytest.raises(AttributeError, match="inner"):
        Middleware.__new__(Middleware).secrets  # noqa: B018 - reading it raises


class Signing(Middleware):
    """Middleware with a secret of its own."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.secrets = (*self.secrets, "hunter2")


async def test_secrets_of_both_are_masked_in_errors() -> None:
    inner: Any = Script(status(400, b"password and hunter2"))
    inner.secrets = ("password",)
    async with client_of(Signing(inner)) as client:
        with pytest.raises(StatusError, match=r": \*\*\* and \*\*\*$"):
            await client.workspaces.fields()
