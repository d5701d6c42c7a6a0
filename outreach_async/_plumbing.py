"""What the shelves may use of the private core, and nothing else: each name, and what it is for.

A shelf is a package above the core, such as `importer`, `audit` or the command. It imports documented names, its own modules, and
this module. Names are imported when they are first used, so that a command starts fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outreach_async._lazy import import_on_use

if TYPE_CHECKING:
    from outreach_async._core.arguments import (
        checked_contact,  # a contact from a mapping, checked
        read_rate,  # the rate that the environment sets
        require_encodable,  # text without lone surrogates
        require_headers,  # header fields that a request may have
        require_id,  # an id or a key of one kind
        require_number,  # a whole number within bounds
        require_plain,  # one line without whitespace
        require_rate,  # requests per second
        require_seconds,  # a time limit in seconds, or `None`
        require_types,  # arguments by the annotations of their function
        require_workspace_ids,  # ids of workspaces, each once
        show_name,  # a name in a message, cut and without keys
        similar_names,  # the most similar names
        trim,  # a text or secret without whitespace around it
        type_name,  # the type of a value that may be secret
    )
    from outreach_async._core.limits import (
        CubicLimit,  # a limit that is learned from refusals
        Rate,  # the protocol of a shared rate
        RateShare,  # what a client may send
        RateUsage,  # what a client has sent
    )
    from outreach_async._core.logs import (
        configure_logging,  # the log lines of `--verbose`
    )
    from outreach_async._core.operations import (
        order_fields,  # codes of fields in the order of the wire
    )
    from outreach_async._core.responses import (
        mask_string,  # a text without the given secrets
        parse_retry_after,  # how long a response asks to wait
        secret_parts,  # the secrets in header fields
    )
    from outreach_async._core.retry import (
        is_denied,  # the error refuses the key
        is_permanent_rejection,  # a retry would not change the error
    )
    from outreach_async._core.value_rules import (
        PHONE_EXTENSION,  # the extension behind a phone number
    )
    from outreach_async._core.values import (
        Change,  # what was done to the text of a cell, or found in it
        find_odd,  # the texts of a column that a check refuses
        find_suspects,  # the texts of a column that `read_value` may change
        read_value,  # the value that a text of a cell means
    )
    from outreach_async._files.atomic import (
        atomic_file,  # replace a file when it is complete
        atomic_write,  # the same for a text
        partial_path,  # where the file of an unfinished run goes
    )
    from outreach_async._files.objects import (
        create_or_read,  # create an object, or read the one of that name
        describe_problem,  # an error of obstore, without credentials
        is_url,  # whether a place is a URL of a bucket
        open_place,  # the objects of a URL or a folder
        open_store,  # obstore's store of a URL
    )
    from outreach_async._files.optional import (
        require_module,  # an installed extra
    )
    from outreach_async._files.sqlite import (
        SqliteFile,  # an SQLite file, opened without changing it first
    )
    from outreach_async._files.tables import (
        escape_formula,  # a text that no spreadsheet evaluates
        open_table,  # a writer of CSV, JSON Lines or Parquet
        unescape_formula,  # the text that was escaped
    )
    from outreach_async._files.toml import (
        parse_toml,  # TOML, with a position in errors
    )
    from outreach_async._wire_words import (
        CUSTOM_CODE,  # the pattern of codes of custom fields
    )
    from outreach_async.bulk._arrow_cells import (
        cell_kind,  # what the cells of a column of Arrow are
        to_strings,  # the cells of a column of Arrow as text
    )
    from outreach_async.bulk._cells import (
        is_blank,  # whether a cell says nothing
    )
    from outreach_async.bulk._contact_keys import (
        contact_key,  # an e-mail as the service compares it
        order_key,  # equal for e-mails that may be one contact
    )
    from outreach_async.bulk._outcomes import (
        add_reports,  # the sums of outcomes and targets
        affects_every_row,  # the error says nothing about its row
        failed_outcome,  # the outcome of a row whose request failed
        unsent_outcome,  # the outcome of a row that was not sent
    )
    from outreach_async.bulk._progress import (
        RateEstimator,  # the rate of what was done lately
        describe_pace,  # the rate, the state and the remaining time
    )
    from outreach_async.bulk._row_index import (
        RowIndex,  # finds the rows of an input that have equal keys
    )
    from outreach_async.bulk._rows import (
        WHOLE_INPUT,  # policies for repeats that read the whole input first
        RecentEmails,  # rows with the e-mail of a recent row
        rejection_message,  # the error of a repeated row
        require_fitting,  # options of a run that conflict, or need others
    )
    from outreach_async.bulk._run import (
        with_names,  # record the names of campaigns in a run
    )
    from outreach_async.bulk._source import (
        ReadRows,  # rows that another source has read
    )
    from outreach_async.bulk._targets import (
        Targets,  # finds the targets that rows name
    )
    from outreach_async.bulk._throttle import (
        RunThrottle,  # waits as a run does
    )
    from outreach_async.store._comparing import (
        count_changes,  # compare rows with a ledger, and send nothing
    )
    from outreach_async.store._objects import (
        TakenOverError,  # another run has taken the journal
    )
    from outreach_async.store._records import (
        require_same_run,  # the run is the one that was recorded
        translate_errors,  # errors of a journal instead of `OSError`
    )
    from outreach_async.transport._backends import (
        Backend,  # the names of the HTTP libraries
        create_transport,  # a transport of a backend
    )
    from outreach_async.transport._lifecycle import (
        AT_WORK,  # the threads for which virtual time waits
    )
    from outreach_async.transport._secret import (
        Secret,  # a text that no repr shows
        drop_frames,  # errors without frames, which may show secrets
        hide_key,  # the owner key of options as a `Secret`
        mask_keys,  # a text without anything like a key
    )
    from outreach_async.transport._urls import (
        is_loopback,  # whether a host is this machine
        parse_base_url,  # the parts of a base URL, checked
        service_address,  # the base URL of a transport, without user
    )

_HOMES: Final = {
    "_core.arguments": (
        "checked_contact read_rate require_encodable require_headers require_id "
        "require_number require_plain require_rate require_seconds require_types require_workspace_ids "
        "show_name similar_names trim type_name"
    ),
    "_core.limits": "CubicLimit Rate RateShare RateUsage",
    "_core.logs": "configure_logging",
    "_core.operations": "order_fields",
    "_core.responses": "mask_string parse_retry_after secret_parts",
    "_core.retry": "is_denied is_permanent_rejection",
    "_core.value_rules": "PHONE_EXTENSION",
    "_core.values": "Change find_odd find_suspects read_value",
    "_files.atomic": "atomic_file atomic_write partial_path",
    "_files.objects": "create_or_read describe_problem is_url open_place open_store",
    "_files.optional": "require_module",
    "_files.sqlite": "SqliteFile",
    "_files.tables": "escape_formula open_table unescape_formula",
    "_files.toml": "parse_toml",
    "_wire_words": "CUSTOM_CODE",
    "bulk._arrow_cells": "cell_kind to_strings",
    "bulk._cells": "is_blank",
    "bulk._contact_keys": "contact_key order_key",
    "bulk._outcomes": "add_reports affects_every_row failed_outcome unsent_outcome",
    "bulk._progress": "RateEstimator describe_pace",
    "bulk._row_index": "RowIndex",
    "bulk._rows": "WHOLE_INPUT RecentEmails rejection_message require_fitting",
    "bulk._run": "with_names",
    "bulk._source": "ReadRows",
    "bulk._targets": "Targets",
    "bulk._throttle": "RunThrottle",
    "store._comparing": "count_changes",
    "store._objects": "TakenOverError",
    "store._records": "require_same_run translate_errors",
    "transport._backends": "Backend create_transport",
    "transport._lifecycle": "AT_WORK",
    "transport._secret": "Secret drop_frames hide_key mask_keys",
    "transport._urls": "is_loopback parse_base_url service_address",
}
if not TYPE_CHECKING:
    __getattr__ = import_on_use(__name__, "outreach_async", _HOMES)
