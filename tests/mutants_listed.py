"""The mutants: what the fake, bulk runs and imports could get wrong, and which tests notice. `mutants.py` tries them."""

from __future__ import annotations

from typing import Final

from mutants import Mutant
from mutants_simulation import SIMULATION

_CONTACTS: Final = "test_fake_contacts.py::test_"
_PAGING: Final = "test_fake_paging.py::test_"
_ACCESS: Final = "test_fake_access.py::test_"
_STRICT: Final = "test_fake_validation.py::test_"
_FAULTS: Final = "test_fake_faults.py::test_"
_DAMAGE: Final = "test_fake_parity.py::test_"
_SERVICE: Final = "test_fake_service.py::test_"
_WIRE: Final = "test_fake_wire.py::test_"
_ALWAYS: Final = "test_fake_invariants.py::test_"
_IN_FLIGHT: Final = "test_fake_in_flight.py::test_"
_LABELS: Final = "test_bulk_labels.py::test_"
_COLUMNS: Final = "test_importer_columns.py::test_"

MUTANTS: Final = (
    # Creation.
    Mutant(
        "a skipped contact joins the campaign",
        "fake/contacts.py",
        "return _enrolled(contact, creation.campaign, behaviour, now) if behaviour.skip_enrols else contact",
        "return _enrolled(contact, creation.campaign, behaviour, now)",
        (_CONTACTS + "c10_skip_changes_nothing_at_all",),
    ),
    Mutant(
        "letter case tells e-mails apart",
        "fake/contacts.py",
        '"lower": str.lower,',
        '"lower": str,',
        (_CONTACTS + "c4_emails_are_the_same_as_the_knob_says",),
    ),
    Mutant(
        "e-mails are not trimmed",
        "fake/creation.py",
        '_typed(body, "email", str, "a text").strip()',
        '_typed(body, "email", str, "a text")',
        (_CONTACTS + "c4_an_email_is_stored_as_sent_after_trimming",),
    ),
    Mutant(
        "a contact of another workspace is a duplicate",
        "fake/handlers.py",
        "existing = world.contacts[creation.workspace].get(key)",
        "existing = next((contacts[key] for contacts in world.contacts.values() if key in contacts), None)",
        (_CONTACTS + "c1_a_duplicate_is_the_same_email_in_the_same_workspace",),
    ),
    Mutant(
        "whoever overwrites a contact owns it",
        "fake/contacts.py",
        "contact = attrs.evolve(contact, email=creation.email,",
        "contact = attrs.evolve(contact, owner=creation.owner_key, email=creation.email,",
        (_CONTACTS + "c5_a_duplicate_keeps_its_owner_whoever_writes",),
    ),
    Mutant(
        "update_missing_fields overwrites",
        "fake/contacts.py",
        "if not _blank(value) and _blank(stored.get(code))}",
        "if not _blank(value)}",
        ("test_fake_contacts_machine.py",),
    ),
    Mutant(
        "update_missing_fields stores blanks",
        "fake/contacts.py",
        "if not _blank(value) and _blank(stored.get(code))}",
        "if _blank(stored.get(code))}",
        (_CONTACTS + "c13_update_missing_fields_never_takes_null_or_blank",),
    ),
    Mutant(
        "a missing field is one that is absent, not one that is blank",
        "fake/contacts.py",
        "_blank(stored.get(code))}",
        "code not in stored}",
        (_CONTACTS + "c13_update_missing_fields_fills_what_is_absent_or_blank",),
    ),
    Mutant(
        "overwrite clears what was not sent",
        "fake/contacts.py",
        'dict(stored) if behaviour.overwrite_unsent == "keep" else',
        'dict(stored) if behaviour.overwrite_unsent == "clear" else',
        (_CONTACTS + "c11_overwrite_replaces_what_was_sent_and_keeps_the_rest",),
    ),
    Mutant(
        "a skipped contact's id is told",
        "fake/handlers.py",
        '"id": None if skipped else contact.id,',
        '"id": contact.id,',
        (_CONTACTS + "c25_a_repeat_gives_the_id_under_update_missing_fields_and_not_under_skip",),
    ),
    Mutant(
        "every outcome answers 201",
        "fake/handlers.py",
        "return created_status if outcome == ADDED else 200",
        "return created_status",
        (_CONTACTS + "c3_the_status_of_each_outcome_is_a_knob",),
    ),
    Mutant(
        "another workspace's campaign takes the contact",
        "fake/handlers.py",
        'find_campaign(creation.campaign, world, "upload_options.campaign", workspace.id)',
        'find_campaign(creation.campaign, world, "upload_options.campaign")',
        (_CONTACTS + "c17_an_unknown_campaign_and_another_workspaces_are_the_same_404",),
    ),
    Mutant(
        "joining again starts anew",
        "fake/contacts.py",
        'if behaviour.reenrol == "noop":',
        'if behaviour.reenrol != "noop":',
        (_CONTACTS + "c16_joining_again_has_no_effect",),
    ),
    Mutant(
        "a campaign counts a contact again at each change",
        "fake/world.py",
        "contact.enrolments[len(before.enrolments) if before else 0 :]",
        "contact.enrolments",
        ("test_fake_contacts_machine.py",),
    ),
    Mutant(
        "a refused creation uses up an id",
        "fake/handlers.py",
        "    if creation.strict:\n",
        '    world.new_id(context.seed, "contact_")\n    if creation.strict:\n',
        (_ALWAYS + "every_refusal_and_every_skip_leaves_the_state_unchanged",),
    ),
    Mutant(
        "two who create one contact do not wait for each other",
        "fake/service.py",
        "self._lock = threading.RLock()",
        "self._lock: Any = __import__('contextlib').nullcontext()",
        (
            _ALWAYS + "the_journal_replayed_in_its_order_on_a_fresh_fake_gives_the_same_answers_and_state",
            _SERVICE + "c24_of_many_threads_that_create_one_contact_exactly_one_adds_it",
        ),
    ),
    Mutant(
        "a snapshot goes on changing",
        "fake/world.py",
        "{space: dict(contacts) for space, contacts in self.contacts.items()}",
        "dict(self.contacts)",
        (_SERVICE + "a_snapshot_keeps_the_state_and_the_time_whatever_comes_after",),
    ),
    # Paging.
    Mutant(
        "the last page is not counted unless it is full",
        "fake/paging.py",
        "pages = -(-total // query.display)",
        "pages = total // query.display",
        (_PAGING + "a_page_is_what_a_plain_reading_of_its_rules_says",),
    ),
    Mutant(
        "a row is lost between two pages",
        "fake/paging.py",
        "start = min(index * query.display, total)",
        "start = min(index * query.display + (index > 1), total)",
        (_PAGING + "the_pages_of_every_display_join_to_the_whole_list",),
    ),
    Mutant(
        "newest first turns each page around and not the list",
        "fake/handlers.py",
        "order[len(order) - cut.stop : len(order) - cut.start]",
        "order[cut.start : cut.stop]",
        (_PAGING + "p10_lists_are_ordered_by_creation",),
    ),
    Mutant(
        "a page past the end is the last one",
        "fake/paging.py",
        'if index > last and behaviour.past_end == "clamp":',
        "if index > last:",
        (_PAGING + "p8_a_page_past_the_end_is_empty_and_keeps_its_number",),
    ),
    Mutant(
        "digits of any script are a number",
        "fake/paging.py",
        "if _NUMBER.fullmatch(text) and",
        "if text.isdigit() and",
        (_PAGING + "p5_a_bad_number_is_400_and_named",),
    ),
    Mutant(
        "too large a display is silently the maximum",
        "fake/paging.py",
        'if behaviour.over_max == "clamp":',
        'if behaviour.over_max != "serve":',
        (_PAGING + "p2_and_p6_a_display_over_the_maximum_is_400",),
    ),
    # Validation.
    Mutant(
        "strict validation tells of the first failure only",
        "fake/validation.py",
        "            wanted[code] = reason\n",
        "            return {code: reason}\n",
        (_ACCESS + "a4_strict_failures_are_all_listed",),
    ),
    Mutant(
        "strict validation lets duplicates pass",
        "fake/handlers.py",
        "    if creation.strict:\n",
        "    if creation.strict and email_key(behaviour)(creation.email) not in world.contacts[workspace.id]:\n",
        (_CONTACTS + "c28_strict_validation_comes_before_the_duplicate_test",),
    ),
    Mutant(
        "a state is judged without its country",
        "fake/validation.py",
        'is_state(value, fields.get("country"))',
        "is_state(value, None)",
        (_STRICT + "c27_a_state_is_judged_by_the_country_beside_it",),
    ),
    Mutant(
        "five digits are a phone number",
        "fake/validation.py",
        're.compile(r"[0-9]{7,15}")',
        're.compile(r"[0-9]{5,15}")',
        (_STRICT + "c27_a_bad_value_is_refused_by_its_field",),
    ),
    Mutant(
        "a member that is named twice is taken",
        "fake/bodies.py",
        "if len(members) != len(pairs):",
        "if len(members) > len(pairs):",
        (_WIRE + "w8_what_is_not_strict_json_is_400",),
    ),
    # Access and limits.
    Mutant(
        "a key opens every workspace",
        "fake/access.py",
        "if workspace not in spaces:",
        "if not spaces:",
        (_ACCESS + "a2_a_key_whose_user_is_not_in_the_workspace_is_403",),
    ),
    Mutant(
        "an unknown key is shown",
        "fake/access.py",
        '"the owner_key is not known"',
        'f"the owner_key {owner_key} is not known"',
        (_WIRE + "no_answer_and_no_repr_shows_an_owner_key",),
    ),
    Mutant(
        "a credential passes under any scheme",
        "fake/access.py",
        "if not known or scheme.lower() != auth.scheme.lower():",
        "if not known:",
        (_ACCESS + "a3_a_header_may_be_asked_for",),
    ),
    Mutant(
        "a full window never empties",
        "fake/limiter.py",
        "            self._counts.clear()",
        "            self._counts.copy()",
        (_ACCESS + "e4_requests_over_the_limit_are_429_until_the_window_ends",),
    ),
    Mutant(
        "one exchange too many may be under way",
        "fake/limiter.py",
        "if len(self._under_way) >= most:",
        "if len(self._under_way) > most:",
        (_IN_FLIGHT + "e4_one_exchange_more_than_may_be_under_way_is_429_until_one_ends",),
    ),
    Mutant(
        "an exchange in memory never ends",
        "fake/transport.py",
        "            exchange.ended()",
        "            pass",
        (_IN_FLIGHT + "e4_however_an_exchange_ends_it_makes_room_for_the_next",),
    ),
    # Faults.
    Mutant(
        "commit_then does not commit",
        "fake/faults.py",
        'label=f"commit_then({fault.label})", commits=True)',
        'label=f"commit_then({fault.label})")',
        (_FAULTS + "commit_then_lets_the_service_act_once_before_any_fault",),
    ),
    Mutant(
        "a script is met from its end",
        "fake/waiting.py",
        "return script.popleft()",
        "return script.pop()",
        (_FAULTS + "a_script_is_met_in_order_and_then_all_goes_well",),
    ),
    Mutant(
        "what is left of a script is nobody's concern",
        "fake/waiting.py",
        "return scripted + [",
        "return [",
        (_FAULTS + "what_has_not_struck_as_asked_is_named_and_fails",),
    ),
    Mutant(
        "a refused connection may have been sent",
        "fake/damage.py",
        '_lost("connection refused", sent=False)',
        '_lost("connection refused")',
        (_DAMAGE + "a_refused_connection_ends_alike_in_memory_and_where_nobody_listens",),
    ),
    Mutant(
        "a body that is cut in memory arrives as it is",
        "fake/damage.py",
        '"truncate": _lost("connection closed within the response body"),',
        '"truncate": lambda _, response: Reading(response=response),',
        (_DAMAGE + "a_creation_that_meets_a_fault_ends_alike_in_memory_and_over_httpx",),
    ),
    Mutant(
        "a drift concerns the first item of a list",
        "fake/exchange.py",
        "return [_drifted(item, path, change) for item in value]",
        "return [_drifted(item, path, change) for item in value[:1]] + value[1:]",
        (_FAULTS + "a_drift_changes_the_named_member_of_the_answer_and_nothing_else",),
    ),
    # The journal.
    Mutant(
        "the journal denies what it has let go",
        "fake/journal.py",
        "        self._require(0)\n        return iter(tuple(self._kept))",
        "        return iter(tuple(self._kept))",
        (_SERVICE + "what_was_let_go_is_missed_and_not_denied",),
    ),
    Mutant(
        "the journal counts only what it keeps",
        "fake/journal.py",
        "        self._total += 1\n",
        "        self._total = len(self._kept)\n",
        (_SERVICE + "counts_stay_exact_when_requests_are_let_go",),
    ),
    Mutant(
        "the journal says that a fault's answer was the service's",
        "fake/answers.py",
        "served=call.request_id is not None,",
        "served=True,",
        (_SERVICE + "a_fault_answers_in_the_services_place_and_is_in_the_journal",),
    ),
    *SIMULATION,
    # Bulk runs and imports.
    Mutant(
        "rows that wait for their key are forgotten",
        "bulk/pipeline.py",
        "*hands, *known]",
        "*hands]",
        ("test_bulk_journal.py::test_a_row_that_waits_for_its_email_is_not_forgotten_when_a_resumed_run_is_left",),
    ),
    Mutant(
        "a final status proves that nothing happened",
        "retry.py",
        "error.status_code not in _CLIENT_ERRORS or error.status_code in _NO_PROOF",
        "error.status_code == _UNAVAILABLE",
        (_LABELS + "a_status_that_may_follow_a_creation_leaves_every_label_true",),
    ),
    Mutant(
        "refusals of everything cut the rate like any other",
        "bulk/flow/rate.py",
        "return self._vain > _VAIN or (self._vain > 1 and not achieved)",
        "return achieved < 0",
        ("test_bulk_flow_client.py::test_a_run_whose_first_twenty_requests_are_refused_is_done_in_half_a_minute",),
    ),
    Mutant(
        "the order key knows no compatibility forms",
        "bulk/source.py",
        'unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())',
        'unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).upper().casefold())',
        ("test_bulk_order_key.py::test_with_a_service_that_folds_by_nfkc_no_contact_ends_out_of_order",),
    ),
    Mutant(
        "a number with a leading zero is a custom field",
        "importer/columns.py",
        'r"custom(0|[1-9][0-9]*)"',
        'r"custom([0-9]+)"',
        (_COLUMNS + "what_cannot_be_mapped_is_refused_with_the_way_out",),
    ),
    Mutant(
        "a header's letters have one form",
        "importer/columns.py",
        'normalize("NFKC", name).casefold()',
        "name.casefold()",
        (_COLUMNS + "a_header_in_letters_of_another_form_is_the_code_that_it_spells",),
    ),
)
