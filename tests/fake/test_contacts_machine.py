"""The contacts of the fake, compared with an oracle that implements the rules in the simplest way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.examples import scaled
from support.fake import KEY, OTHER, SPACE, START, creation, page, post, small_world, steps
from support.tables import check_rows

from outreach_async.fake import Behaviour, FakeService

LOCALS = ["ada", "Ada", "bo", "bo+x", "b.o"]
EMAILS = [f"{local}@{domain}" for local in LOCALS for domain in ("acme.example", "ACME.example", "gmail.com")] + [
    " ada@acme.example "
]
GMAIL = ("@gmail.com", "@googlemail.com")
VALUES = ["", " ", "x", "y", None]
CODES = ["first_name", "city", "custom_1", "custom_9"]
CAMPAIGNS = [None, "camp_1", "camp_2"]
SPACES = [SPACE, OTHER]

BEHAVIOURS = st.builds(
    Behaviour,
    email_key=st.sampled_from(["lower", "exact", "domain_lower", "gmail"]),
    unknown_custom=st.sampled_from(["reject", "ignore", "store"]),
    skip_enrols=st.booleans(),
    overwrite_unsent=st.sampled_from(["keep", "clear"]),
    overwrite_blank=st.sampled_from(["clear", "keep", "store"]),
    reenrol=st.sampled_from(["noop", "error"]),
)


class Oracle:
    """The expected contacts: lists searched from the start, with each rule written out."""

    def __init__(self, behaviour: Behaviour, homes: Mapping[str, str]) -> None:
        self.behaviour = behaviour
        self.homes = homes
        self.contacts: list[dict[str, Any]] = []

    def same(self, one: str, other: str) -> bool:
        if self.behaviour.email_key == "exact":
            return one == other
        if self.behaviour.email_key == "domain_lower":
            (one_local, one_domain), (other_local, other_domain) = one.split("@"), other.split("@")
            return one_local == other_local and one_domain.lower() == other_domain.lower()
        one, other = one.lower(), other.lower()
        if self.behaviour.email_key == "gmail" and all(each.endswith(GMAIL) for each in (one, other)):
            return one.split("@")[0].split("+")[0].replace(".", "") == other.split("@")[0].split("+")[0].replace(".", "")
        return one == other

    def create(
        self, space: str, email: str, duplicates: str, campaign: str | None, sent: dict[str, str | None]
    ) -> tuple[int, str | None]:
        """Perform a creation; return the status, and the outcome if there is one."""
        email = email.strip()
        custom = ["custom_1"] if space == SPACE else []
        if campaign is not None and self.homes[campaign] != space:
            return 404, None
        unknown = [code for code in sent if code.startswith("custom_") and code not in custom]
        if unknown and self.behaviour.unknown_custom == "reject":
            return 400, None
        if self.behaviour.unknown_custom == "ignore":
            sent = {code: value for code, value in sent.items() if code not in unknown}
        found = [contact for contact in self.contacts if contact["space"] == space and self.same(contact["email"], email)]
        if not found:
            fields = {code: value for code, value in sent.items() if value is not None}
            self.contacts.append({"space": space, "email": email, "fields": fields, "campaigns": [campaign] if campaign else []})
            return 201, "added"
        return self.change(found[0], email, duplicates, campaign, sent)

    def change(
        self, contact: dict[str, Any], email: str, duplicates: str, campaign: str | None, sent: dict[str, str | None]
    ) -> tuple[int, str]:
        joins = campaign is not None and (duplicates != "skip" or self.behaviour.skip_enrols)
        if joins and campaign in contact["campaigns"] and self.behaviour.reenrol == "error":
            return 409, "refused"
        if joins and campaign not in contact["campaigns"]:
            contact["campaigns"].append(campaign)
        if duplicates == "skip":
            return 200, "skipped"
        if duplicates == "update_missing_fields":
            for code, value in sent.items():
                if value is not None and value.strip() != "" and (contact["fields"].get(code) or "").strip() == "":
                    contact["fields"][code] = value
            return 200, "updated_missing_fields"
        contact["email"] = email
        contact["fields"] = self.overwritten(contact["fields"], sent)
        return 200, "overwriten"

    def overwritten(self, old: dict[str, str | None], sent: dict[str, str | None]) -> dict[str, str | None]:
        new: dict[str, str | None] = {}
        for code in {**old, **sent}:
            value = sent.get(code)
            blank = value is None or value.strip() == ""
            unsent = code not in sent
            if unsent and self.behaviour.overwrite_unsent == "keep":
                new[code] = old[code]
            elif not unsent and (not blank or self.behaviour.overwrite_blank == "store"):
                new[code] = value
            elif not unsent and self.behaviour.overwrite_blank == "keep" and code in old:
                new[code] = old[code]
        return new


@pytest.mark.parametrize("reading", ["lower", "exact", "domain_lower", "gmail"])
def test_c4_the_knob_decides_which_emails_are_equal(reading: Any) -> None:
    fake = small_world(email_key=reading)
    empty, oracle = fake.snapshot(), Oracle(fake.behaviour, {})

    def check(one: str, other: str) -> None:
        fake.restore(empty)
        assert json.loads(post(fake, creation(one)).body)["status"] == "added"
        is_same = json.loads(post(fake, creation(other)).body)["status"] == "skipped"
        assert is_same == oracle.same(one.strip(), other.strip())

    emails = [*EMAILS, "B.O+y@googlemail.com"]
    check_rows(itertools.product(emails, emails), check)


OLD: dict[str, str | None] = {"first_name": "old", "last_name": "old", "title": "old", "city": " \t", "zip": "old", "degree": ""}
NEW: dict[str, str | None] = {"first_name": "new", "last_name": None, "title": " ", "city": "new", "school": "new", "region": ""}
CHOICES = [
    Behaviour(skip_enrols=skip_enrols, overwrite_unsent=unsent, overwrite_blank=blank, reenrol=reenrol)
    for skip_enrols in (False, True)
    for unsent in ("keep", "clear")
    for blank in ("clear", "keep", "store")
    for reenrol in ("noop", "error")
]


@pytest.mark.parametrize("duplicates", ["skip", "overwrite", "update_missing_fields"])
def test_c5_to_c16_a_second_creation_does_what_the_rules_say(duplicates: str) -> None:
    fake = small_world()
    fake.add_owner_key(SPACE, key="key_other")
    fake.add_contacts(SPACE, [{"email": "ada@acme.example", **OLD}], campaign="camp_1")
    fake.advance(hours=1)
    old = fake.contacts(SPACE)[-1]
    state, before = fake.snapshot(), fake.dump()

    def check(behaviour: Behaviour, campaign: str | None) -> None:
        fake.restore(state)
        fake.behaviour = behaviour
        oracle = Oracle(behaviour, {"camp_1": SPACE, "camp_2": SPACE})
        oracle.contacts = [old | {"space": SPACE, "fields": dict(old["fields"]), "campaigns": ["camp_1"]}]
        body = creation(" ADA@acme.example", owner_key="key_other", duplicates=duplicates, campaign=campaign, **NEW)
        response = post(fake, body)
        status, outcome = oracle.create(SPACE, body["email"], duplicates, campaign, NEW)
        (expected,) = oracle.contacts
        del expected["space"]
        assert response.status == status, response.body
        assert fake.contacts(SPACE)[-1] == expected
        if status >= 300 or (duplicates == "skip" and campaign not in expected["campaigns"]):
            assert fake.dump() == before
        if status < 300:
            answered = json.loads(response.body)
            assert (answered["status"], answered["id"]) == (outcome, None if duplicates == "skip" else old["id"])
        joined = [place.at - START for place in fake._world.contacts[SPACE]["ada@acme.example"].enrolments]
        assert joined == [0.0, 3600.0][: len(joined)]

    check_rows(itertools.product(CHOICES, [None, "camp_1", "camp_2"]), check)


class Contacts(RuleBasedStateMachine):
    """Creates contacts, mostly existing ones, in worlds that are not empty."""

    @initialize(behaviour=BEHAVIOURS, seed=st.integers(0, 3))
    def start(self, behaviour: Behaviour, seed: int) -> None:
        self.fake = FakeService(seed, behaviour)
        self.oracle = Oracle(behaviour, {"camp_1": SPACE, "camp_2": OTHER})
        self.ids: dict[tuple[str, str], str] = {}
        self.fake.add_workspace(SPACE, custom_fields=["Plan"])
        self.fake.add_workspace(OTHER)
        self.fake.add_owner_key(SPACE, OTHER, key=KEY)
        self.fake.add_campaign(SPACE, id="camp_1", steps=["A", "A"])
        self.fake.add_campaign(OTHER, id="camp_2", steps=["A"])
        for space, camp in ((SPACE, "camp_1"), (OTHER, "camp_2")):
            rows: list[dict[str, str | None]] = [
                {"email": "ada@acme.example", "city": " "},
                {"email": "bo@gmail.com", "first_name": "x"},
            ]
            self.fake.add_contacts(space, rows, campaign=camp)
            for row in rows:
                fields = {code: value for code, value in row.items() if code != "email"}
                self.oracle.contacts.append({"space": space, "email": row["email"], "fields": fields, "campaigns": [camp]})

    @rule(
        space=st.sampled_from(SPACES),
        email=st.sampled_from(EMAILS),
        duplicates=st.sampled_from(["skip", "overwrite", "update_missing_fields"]),
        campaign=st.sampled_from(CAMPAIGNS),
        sent=st.dictionaries(st.sampled_from(CODES), st.sampled_from(VALUES)),
    )
    def create(self, space: str, email: str, duplicates: str, campaign: str | None, sent: dict[str, str | None]) -> None:
        self.post(space, email, duplicates, campaign, sent)

    @rule(
        which=st.integers(0),
        duplicates=st.sampled_from(["skip", "overwrite", "update_missing_fields"]),
        joins=st.booleans(),
        sent=st.dictionaries(st.sampled_from(["first_name", "city"]), st.sampled_from(["", None, "new"]), min_size=1),
    )
    def create_again(self, which: int, duplicates: str, joins: bool, sent: dict[str, str | None]) -> None:
        """Create an existing contact again, with fields. Random creations rarely do so."""
        contact = self.oracle.contacts[which % len(self.oracle.contacts)]
        space = contact["space"]
        campaign = {SPACE: "camp_1", OTHER: "camp_2"}[space] if joins else None
        self.post(space, contact["email"].upper(), duplicates, campaign, sent)

    def post(self, space: str, email: str, duplicates: str, campaign: str | None, sent: dict[str, str | None]) -> None:
        before = self.fake.dump()
        body = creation(email, workspace=space, duplicates=duplicates, campaign=campaign, **sent)
        response = post(self.fake, body)
        status, outcome = self.oracle.create(space, email, duplicates, campaign, sent)
        assert response.status == status, response.body
        if status < 300:
            assert json.loads(response.body)["status"] == outcome
        if status >= 300 or (outcome == "skipped" and not self.oracle.behaviour.skip_enrols):
            assert self.fake.dump() == before

    @rule()
    def go_back_and_forth(self) -> None:
        snapshot, before = self.fake.snapshot(), self.fake.dump()
        self.fake.add_contacts(SPACE, [{"email": "between@the.moments"}], campaign="camp_1")
        self.fake.advance(days=1)
        self.fake.restore(snapshot)
        assert self.fake.dump() == before

    @rule()
    def go_through_a_file(self) -> None:
        before = self.fake.dump()
        self.fake.load(before)
        assert self.fake.dump() == before

    @rule(hours=st.integers(0, 100))
    def time_passes(self, hours: int) -> None:
        self.fake.advance(hours=hours)

    @invariant()
    def the_stored_contacts_are_those_of_the_oracle(self) -> None:
        for space in SPACES:
            stored = self.fake.contacts(space)
            plain = [{"space": space, **{name: contact[name] for name in ("email", "fields", "campaigns")}} for contact in stored]
            assert plain == [contact for contact in self.oracle.contacts if contact["space"] == space]
            # Ids do not change and are unique.
            assert len({contact["id"] for contact in stored}) == len(stored)
            for place, contact in enumerate(stored):
                assert self.ids.setdefault((space, str(place)), contact["id"]) == contact["id"]

    @invariant()
    def campaigns_count_the_contacts_in_them(self) -> None:
        for space, camp in ((SPACE, "camp_1"), (OTHER, "camp_2")):
            enrolled = sum(camp in contact["campaigns"] for contact in self.oracle.contacts)
            (item,) = json.loads(page(self.fake, "/campaigns", workspace=space).body)["data"]
            data = steps(self.fake, camp)["data"]
            assert item["contacts"] == enrolled
            assert {(step["left_to_send"], step["already_sent"], step["out_of"]) for step in data} == {(enrolled, 0, enrolled)}


Contacts.TestCase.settings = settings(max_examples=scaled(40), stateful_step_count=25, deadline=None)
TestContacts = pytest.mark.thorough(Contacts.TestCase)
