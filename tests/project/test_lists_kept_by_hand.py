"""Lists that are kept in several places agree: a missing operation, model or field fails a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import attrs
from support.openapi import OPERATIONS as DESCRIBED
from support.tables import check_rows
from support.wire import KINDS, OF_EVERY_KIND

import outreach_async.models
from outreach_async import ContactFields, ContactRow
from outreach_async.converters import OutreachConverter
from outreach_async.fake._messages import ANY_SEGMENT, ROUTES
from outreach_async.fake.control._control_plane import OperationName
from outreach_async.fake.faults import OPERATIONS
from outreach_async.models import (
    LOCAL_FIELDS,
    CreateContactResponse,
    NewContact,
    ResponseModel,
    ResponseWithInfo,
    WorkspaceFields,
)
from outreach_async.otel import URL_TEMPLATES

NAMES = [route.operation for route in ROUTES]
"""The operations of the service, as in the fake."""

INNER = {CreateContactResponse, WorkspaceFields}
"""Models of which callers receive the parts."""


def models() -> set[type[ResponseModel]]:
    kinds = {
        value for value in vars(outreach_async.models).values() if isinstance(value, type) and issubclass(value, ResponseModel)
    }
    return kinds - {ResponseModel, ResponseWithInfo}


def segments(path: str) -> tuple[str, ...]:
    return tuple(ANY_SEGMENT if part.startswith("{") else part for part in path.split("/")[1:])


def kinds_of_fields() -> Iterator[Any]:
    """Yield the type of each field of each decoded model."""
    for kind in KINDS.values():
        hints = get_type_hints(get_origin(kind) or kind)
        for field in attrs.fields(get_origin(kind) or kind):
            if field.name not in LOCAL_FIELDS and field.name != "data":
                yield hints[field.name]


def test_every_operation_is_documented_traced_and_can_be_given_faults() -> None:
    routes = {route.operation: route.path for route in ROUTES}
    assert {route.operation: route.method for route in ROUTES} == {name: method for name, (method, _, _) in DESCRIBED.items()}
    assert get_args(OperationName) == OPERATIONS == (*NAMES, "unknown")
    assert {name: segments(path) for name, path in URL_TEMPLATES.items()} == routes
    assert {name: segments(path) for name, (_, path, _) in DESCRIBED.items()} == routes


def test_a_model_that_callers_receive_is_public() -> None:
    def check(model: type[ResponseModel]) -> None:
        assert model.__name__ in outreach_async.__all__

    check_rows(((model,) for model in sorted(models() - INNER, key=str)), check)


def test_typed_rows_and_keywords_have_the_fields_of_a_contact() -> None:
    fields = {field.alias for field in attrs.fields(NewContact)}
    assert get_type_hints(ContactFields).keys() | {"email"} == fields
    assert ContactRow.__required_keys__ == {"email"}
    assert ContactRow.__optional_keys__ == fields - {"email"} | {"campaign", "workspace"}


def test_every_model_is_covered_by_the_tests_of_decoding() -> None:
    read = {get_origin(kind) or kind for kind in KINDS.values()}
    assert read == models() - {outreach_async.CreatedContact}


def test_a_value_is_accepted_or_refused() -> None:
    kinds, converter = sorted({*kinds_of_fields(), int, int | None}, key=str), OutreachConverter()

    def check(value: object, kind: Any) -> None:
        try:
            accepted = converter.unstructure(converter.structure(value, kind))
        except (ValueError, ExceptionGroup):
            return
        assert (type(accepted), accepted) == (type(value), value)

    check_rows(((value, kind) for value in OF_EVERY_KIND for kind in kinds), check)
