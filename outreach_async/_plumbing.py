"""What the shelves may use of the private core, and nothing else: each name, and what it is for.

A shelf is a package above the core, such as `importer`, `audit` or the command. It imports documented names, its own modules, and
this module. Names are imported when they are first used, so that a command starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outreach_async._core.arguments import (
        TARGET_FIELDS,
        check_contact,
        hint_similar,
        masked_repr,
        read_rate,
        require_choice,
        require_encodable,
        require_headers,
        require_id,
        require_number,
        require_plain,
        require_rate,
        require_seconds,
        require_upload_options,
        show_name,
        similar_names,
        to_contact,
        trim,
        type_name,
    )
    from outreach_async._core.events import LOGGER, configure_logging
    from outreach_async._core.limits import CubicLimit, Rate, RateShare, RateUsage
    from outreach_async._core.operations import order_fields
    from outreach_async._core.responses import Secrets, mask_string, parse_date, parse_retry_after, secret_parts
    from outreach_async._core.retry import is_denied, is_permanent_rejection
    from outreach_async._core.value_rules import PHONE_EXTENSION
    from outreach_async._core.values import (
        DIGIT_FIELDS,
        PHONE_FIELDS,
        Change,
        describe_loss,
        error_change,
        find_odd,
        find_suspects,
        number_change,
        read_value,
    )
    from outreach_async._files.atomic import atomic_file, atomic_write, check_writable, parse_descriptor, partial_path
    from outreach_async._files.objects import (
        FolderObjects,
        Objects,
        create_or_read,
        describe_problem,
        import_obstore,
        is_url,
        open_objects,
        open_store,
    )
    from outreach_async._files.optional import require_module
    from outreach_async._files.spreadsheets import escape_formula, unescape_formula
    from outreach_async._files.toml import parse_toml
    from outreach_async._wire_words import (
        CUSTOM_CODE,
        CUSTOM_PREFIX,
        FAILED_OUTCOMES,
        ID_PREFIXES,
        MAX_MAILBOX_DISPLAY,
        RESERVED_FIELDS,
        STANDARD_FIELDS,
        CampaignStatus,
        DuplicatePolicy,
        MailboxStatus,
        MailboxType,
        StepStatus,
        StepType,
        TemplateStatus,
    )
    from outreach_async.bulk._arrow_cells import Array, is_bytes, is_convertible, is_text, to_strings
    from outreach_async.bulk._cells import is_blank, require_clearing
    from outreach_async.bulk._contact_keys import contact_key, hash_contact, order_key
    from outreach_async.bulk._outcomes import (
        Targeted,
        add_counts,
        add_targets,
        affects_every_row,
        failed_outcome,
        is_superseded,
        unsent_outcome,
    )
    from outreach_async.bulk._progress import RateEstimator, describe_state, format_rate
    from outreach_async.bulk._rows import WHOLE_INPUT, RecentEmails, rejection_message, same_address_message
    from outreach_async.bulk._run.bulk_run import with_names
    from outreach_async.bulk._run.comparing import count_changes
    from outreach_async.bulk._source import ReadRows, Rereadable, Source
    from outreach_async.bulk._targets import ListingNeeded, Targets, fails_only_its_rows
    from outreach_async.bulk._throttle import RunThrottle
    from outreach_async.models import RUN_TARGET
    from outreach_async.store.journal._file_journal import CAN_LOCK
    from outreach_async.store.journal._object_journal import TakenOverError, translate_errors
    from outreach_async.store.journal._records import Earlier, encode_identity, require_same_run
    from outreach_async.store.journal._store import recorded_names
    from outreach_async.transport._backends import Backend, create_transport
    from outreach_async.transport._secret import Secret, drop_frames, hide, hide_key, mask_keys, reveal
    from outreach_async.transport._urls import DEFAULT_PORTS, is_loopback, parse_base_url, service_address

__all__ = [
    "CAN_LOCK",
    "CUSTOM_CODE",
    "CUSTOM_PREFIX",
    "DEFAULT_PORTS",
    "DIGIT_FIELDS",
    "FAILED_OUTCOMES",
    "ID_PREFIXES",
    "LOGGER",
    "MAX_MAILBOX_DISPLAY",
    "PHONE_EXTENSION",
    "PHONE_FIELDS",
    "RESERVED_FIELDS",
    "RUN_TARGET",
    "STANDARD_FIELDS",
    "TARGET_FIELDS",
    "WHOLE_INPUT",
    "Array",
    "Backend",
    "CampaignStatus",
    "Change",
    "CubicLimit",
    "DuplicatePolicy",
    "Earlier",
    "FolderObjects",
    "ListingNeeded",
    "MailboxStatus",
    "MailboxType",
    "Objects",
    "Rate",
    "RateEstimator",
    "RateShare",
    "RateUsage",
    "ReadRows",
    "RecentEmails",
    "Rereadable",
    "RunThrottle",
    "Secret",
    "Secrets",
    "Source",
    "StepStatus",
    "StepType",
    "TakenOverError",
    "Targeted",
    "Targets",
    "TemplateStatus",
    "add_counts",
    "add_targets",
    "affects_every_row",
    "atomic_file",
    "atomic_write",
    "check_contact",
    "check_writable",
    "configure_logging",
    "contact_key",
    "count_changes",
    "create_or_read",
    "create_transport",
    "describe_loss",
    "describe_problem",
    "describe_state",
    "drop_frames",
    "encode_identity",
    "error_change",
    "escape_formula",
    "failed_outcome",
    "fails_only_its_rows",
    "find_odd",
    "find_suspects",
    "format_rate",
    "hash_contact",
    "hide",
    "hide_key",
    "hint_similar",
    "import_obstore",
    "is_blank",
    "is_bytes",
    "is_convertible",
    "is_denied",
    "is_loopback",
    "is_permanent_rejection",
    "is_superseded",
    "is_text",
    "is_url",
    "mask_keys",
    "mask_string",
    "masked_repr",
    "number_change",
    "open_objects",
    "open_store",
    "order_fields",
    "order_key",
    "parse_base_url",
    "parse_date",
    "parse_descriptor",
    "parse_retry_after",
    "parse_toml",
    "partial_path",
    "read_rate",
    "read_value",
    "recorded_names",
    "rejection_message",
    "require_choice",
    "require_clearing",
    "require_encodable",
    "require_headers",
    "require_id",
    "require_module",
    "require_number",
    "require_plain",
    "require_rate",
    "require_same_run",
    "require_seconds",
    "require_upload_options",
    "reveal",
    "same_address_message",
    "secret_parts",
    "service_address",
    "show_name",
    "similar_names",
    "to_contact",
    "to_strings",
    "translate_errors",
    "trim",
    "type_name",
    "unescape_formula",
    "unsent_outcome",
    "with_names",
]

_HOMES: Final = {
    "_core.arguments": (
        "TARGET_FIELDS check_contact hint_similar masked_repr read_rate require_choice require_encodable "
        "require_headers require_id require_number require_plain require_rate require_seconds require_upload_options "
        "show_name similar_names to_contact trim type_name"
    ),
    "_core.events": "LOGGER configure_logging",
    "_core.operations": "order_fields",
    "_core.responses": "Secrets mask_string parse_date parse_retry_after secret_parts",
    "_core.retry": "is_denied is_permanent_rejection",
    "_core.limits": "CubicLimit Rate RateShare RateUsage",
    "_core.value_rules": "PHONE_EXTENSION",
    "_core.values": (
        "Change DIGIT_FIELDS PHONE_FIELDS describe_loss error_change find_odd find_suspects number_change read_value"
    ),
    "_files.atomic": "atomic_file atomic_write check_writable parse_descriptor partial_path",
    "_files.objects": "FolderObjects Objects create_or_read describe_problem import_obstore is_url open_objects open_store",
    "_files.optional": "require_module",
    "_files.spreadsheets": "escape_formula unescape_formula",
    "_files.toml": "parse_toml",
    "_wire_words": (
        "CUSTOM_CODE CUSTOM_PREFIX CampaignStatus DuplicatePolicy FAILED_OUTCOMES ID_PREFIXES MAX_MAILBOX_DISPLAY "
        "MailboxStatus MailboxType RESERVED_FIELDS STANDARD_FIELDS StepStatus StepType TemplateStatus"
    ),
    "bulk._arrow_cells": "Array is_bytes is_convertible is_text to_strings",
    "bulk._cells": "is_blank require_clearing",
    "bulk._contact_keys": "contact_key hash_contact order_key",
    "bulk._outcomes": "Targeted add_counts add_targets affects_every_row failed_outcome is_superseded unsent_outcome",
    "bulk._progress": "RateEstimator describe_state format_rate",
    "bulk._rows": "RecentEmails WHOLE_INPUT rejection_message same_address_message",
    "bulk._run.bulk_run": "with_names",
    "bulk._run.comparing": "count_changes",
    "bulk._source": "ReadRows Rereadable Source",
    "bulk._targets": "ListingNeeded Targets fails_only_its_rows",
    "bulk._throttle": "RunThrottle",
    "models": "RUN_TARGET",
    "store.journal._file_journal": "CAN_LOCK",
    "store.journal._object_journal": "TakenOverError translate_errors",
    "store.journal._records": "Earlier encode_identity require_same_run",
    "store.journal._store": "recorded_names",
    "transport._backends": "Backend create_transport",
    "transport._secret": "Secret drop_frames hide hide_key mask_keys reveal",
    "transport._urls": "DEFAULT_PORTS is_loopback parse_base_url service_address",
}
_EXPORT_MODULES: Final = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _EXPORT_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: Any = getattr(import_module(f"outreach_async.{_EXPORT_MODULES[name]}"), name)
    globals()[name] = value
    return value
