"""Create campaigns from specifications, and generate omitted values. Inconsistent counts are refused, never corrected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any, Final, Literal

import attrs

from outreach_async.fake.arguments import check_known, require_count, require_mapping, require_string, require_time
from outreach_async.fake.clock import DAY
from outreach_async.fake.records import PERSONALIZED, Campaign, Step, Template
from outreach_async.fake.simulation.chance import Rates
from outreach_async.fake.simulation.state import COUNT_NAMES

_STEP_FIELDS: Final = ("id", "status", "wait_time", "left_to_send", "sent", "templates")
_TEMPLATE_FIELDS: Final = ("id", "test_letter", "name", "status", "new_thread", "subject", "body_text", "rates", *COUNT_NAMES)
_DEFAULT_WAIT: Final = 3 * DAY * 1000
_MAX_WAIT: Final = 3650 * DAY * 1000

StepSeed = str | Mapping[str, Any]
ReserveId = Callable[[str, str | None], str]
"""A function that takes a prefix and an id. It reserves and returns the id, or generates one if the id is `None`."""


def _parse_template_seeds(value: object, order: int) -> Sequence[str | Mapping[str, Any]]:
    """Return the template specifications of a step. The interface requires at least one template per step."""
    seeds = value.split("|") if isinstance(value, str) and value.strip() else value
    if isinstance(seeds, str) or not isinstance(seeds, Sequence) or not seeds:
        raise ValueError(
            f"steps[{order - 1}].templates: expected one or more templates, got {value!r}; "
            "pass letters such as A|B or a list of templates, or omit templates for one template"
        )
    return seeds


def _choose_thread(seed: Mapping[str, Any], order: int, letter: str) -> tuple[bool | None, str | None]:
    """Return whether a template starts a new thread, and the template's subject (rule T6)."""
    if letter == PERSONALIZED:
        new_thread, subject = seed.get("new_thread"), seed.get("subject")
        if new_thread is not None or subject is not None:
            raise ValueError(
                f"new_thread, subject: expected neither for a {PERSONALIZED} template, got {new_thread!r}, {subject!r}; omit both"
            )
        return None, None
    new_thread = seed.get("new_thread", order == 1)
    follows = order > 1 and not new_thread
    subject = seed.get("subject", None if follows else "A question, {{first_name}}")
    if follows and subject is not None:
        raise ValueError(
            f"subject: expected none for a follow-up in the same thread, got {subject!r}; omit it, or set new_thread to true"
        )
    return new_thread, subject


def _count_left_to_send(
    seeds: Sequence[Mapping[str, Any]], steps: Sequence[Sequence[Template]], contacts: int | None, bounces: int
) -> list[int]:
    """Return the number of contacts left to send to, for each step.

    By default, this is the number of contacts that can still reach the step: contacts that were sent the previous step but not
    this step, and have not left the campaign because of a reply, an unsubscribe or a bounce.
    """
    lefts: list[int] = []
    for place, (seed, templates) in enumerate(zip(seeds, steps, strict=True)):
        sent = _sum_counts(templates, "sent")
        if place:
            before = steps[place - 1]
            exits = _sum_counts(before, "replied_num") + _sum_counts(before, "unsubscribed_num") + (bounces if place == 1 else 0)
            coming = lefts[-1] + max(0, _sum_counts(before, "sent") - sent - exits)
        else:
            coming = 0 if contacts is None else contacts - sent
        if coming < 0:
            raise ValueError(f"contacts: expected at least {sent}, the number of contacts that were sent step 1, got {contacts}")
        lefts.append(require_count("left_to_send", seed.get("left_to_send", coming)))
    return lefts


def _sum_counts(templates: Iterable[Template], count: str) -> int:
    return sum(getattr(template, count) for template in templates)


def _check_step_counts(steps: Sequence[Step], contacts: int | None) -> None:
    """Check that no step has more contacts or sent e-mails than the previous step (rules T3 and T4)."""
    whole = [step.left_to_send + step.already_sent for step in steps]
    if contacts is not None:
        whole.insert(0, contacts)
    sent = [step.already_sent for step in steps]
    if any(later > earlier for figures in (whole, sent) for earlier, later in pairwise(figures)):
        raise ValueError(
            "steps: expected no step to have more contacts than the campaign, or more contacts or sent e-mails than the previous "
            f"step, got contacts {whole} and sent e-mails {sent}"
        )


@attrs.frozen(kw_only=True)
class CampaignSeed:
    """The specification of a campaign to create.

    Attributes:
        workspace: Id of the campaign's workspace.
        id: Id of the campaign; `None` to generate one.
        name: Name of the campaign.
        status: Status of the campaign.
        mailboxes: Ids of the mailboxes that the campaign sends through.
        steps: Specifications of the campaign's steps.
        contacts: Number of contacts that are not stored individually; `None` to use the number of contacts in step 1.
        bounces_num: Number of bounced e-mails; `None` to generate the number if a step has `sent`, and to use 0 otherwise.
        interested_num: Number of interested replies; `None` to generate the number if a step has `sent`, and to use 0 otherwise.
        created: Creation time in Unix seconds; `None` for now.
        last_activity: Time of the last activity in Unix seconds; `None` for never; `auto` for a recent time if any e-mail was
            sent.
        rates: Rates by name, such as `open`; rates that are not named keep their default.
    """

    workspace: str
    id: str | None = None
    name: str = "Campaign"
    status: str = "draft"
    mailboxes: Iterable[str] = ()
    steps: Iterable[StepSeed] = ()
    contacts: int | None = None
    bounces_num: int | None = None
    interested_num: int | None = None
    created: int | None = None
    last_activity: float | Literal["auto"] | None = "auto"
    rates: Mapping[str, float] = attrs.Factory(dict)


@attrs.frozen
class CampaignBuilder:
    """Creates campaigns from their specifications.

    Attributes:
        random: Random generator for counts that are not given.
        reserve_id: Function that reserves a given id, or generates an id.
        created: Default creation time in Unix seconds.
        now: The current time in Unix seconds.
    """

    random: Random
    reserve_id: ReserveId
    created: int
    now: float

    def build(self, seed: CampaignSeed, id_: str) -> Campaign:
        """Create a campaign.

        Raises:
            TypeError: A name is not a field of a step or template, or a value has the wrong type.
            ValueError: The counts are inconsistent.
        """
        step_seeds = list(seed.steps)
        contacts = seed.contacts if seed.contacts is None else require_count("contacts", seed.contacts)
        totals = [step["sent"] for step in step_seeds if not isinstance(step, str) and "sent" in step]
        bounces = totals[0] // 100 if totals and seed.bounces_num is None else require_count("bounces_num", seed.bounces_num or 0)
        rates = Rates().with_changes(seed.rates)
        steps = self._build_steps(step_seeds, contacts, bounces, rates)
        replies = sum(_sum_counts(step.templates, "replied_num") for step in steps)
        if contacts is None:
            contacts = steps[0].left_to_send + steps[0].already_sent if steps else 0
        campaign = Campaign(
            id=id_,
            workspace=seed.workspace,
            name=require_string("name", seed.name),
            status=require_string("status", seed.status),
            mailboxes=tuple(seed.mailboxes),
            steps=steps,
            contacts=contacts,
            bounces_num=bounces,
            interested_num=replies // 3 if totals and seed.interested_num is None else seed.interested_num or 0,
            created=self.created if seed.created is None else require_count("created", seed.created),
            last_activity=None,
            rates=rates,
        )
        _check_campaign_counts(campaign)
        return attrs.evolve(campaign, last_activity=self._choose_last_activity(seed, campaign))

    def _choose_last_activity(self, seed: CampaignSeed, campaign: Campaign) -> float | None:
        if seed.last_activity is None:
            return None
        if seed.last_activity != "auto":
            return require_time("last_activity", seed.last_activity)
        return max(campaign.created, self.now - self.random.uniform(0, DAY)) if campaign.total("sent") else None

    def _build_steps(self, seeds: Iterable[StepSeed], contacts: int | None, bounces: int, rates: Rates) -> tuple[Step, ...]:
        rows = [{"templates": seed} if isinstance(seed, str) else require_mapping("a step", seed) for seed in seeds]
        templates = [self._build_templates(row, order, rates) for order, row in enumerate(rows, 1)]
        lefts = _count_left_to_send(rows, templates, contacts, bounces)
        steps = tuple(
            self._build_step(row, number, parts, left)
            for number, (row, parts, left) in enumerate(zip(rows, templates, lefts, strict=True))
        )
        _check_step_counts(steps, contacts)
        return steps

    def _build_step(self, seed: Mapping[str, Any], number: int, templates: tuple[Template, ...], left: int) -> Step:
        for name in seed:
            check_known(name, _STEP_FIELDS, "a step")
        wait = require_count("wait_time", seed.get("wait_time", _DEFAULT_WAIT if number else 0))
        if wait > _MAX_WAIT:
            raise ValueError(f"wait_time: expected at most {_MAX_WAIT} ms (ten years), got {wait}")
        status = require_string("status", seed.get("status", "live"))
        return Step(self.reserve_id("step_", seed.get("id")), status, wait, left, templates)

    def _build_templates(self, step: Mapping[str, Any], order: int, rates: Rates) -> tuple[Template, ...]:
        seeds = [
            {"test_letter": seed} if isinstance(seed, str) else require_mapping("a template", seed)
            for seed in _parse_template_seeds(step.get("templates", "A"), order)
        ]
        if "sent" in step and any(count in seed for seed in seeds for count in COUNT_NAMES):
            raise ValueError("sent: expected either sent of the step or counts of its templates, got both; omit one of the two")
        letters = [require_string("test_letter", seed.get("test_letter", chr(ord("A") + i))) for i, seed in enumerate(seeds)]
        each, rest = divmod(require_count("sent", step.get("sent", 0)), len(seeds))
        return tuple(
            # The e-mails are distributed as if the templates had taken turns (rule T7).
            self._build_template(seed, order, letter, self._build_counts(seed, each + (place < rest)), rates)
            for place, (seed, letter) in enumerate(zip(seeds, letters, strict=True))
        )

    def _build_template(
        self, seed: Mapping[str, Any], order: int, letter: str, counts: Mapping[str, int], rates: Rates
    ) -> Template:
        for name in seed:
            check_known(name, _TEMPLATE_FIELDS, "a template")
        new_thread, subject = _choose_thread(seed, order, letter)
        return Template(
            self.reserve_id("personalized_step_" if letter == PERSONALIZED else "temp_", seed.get("id")),
            letter,
            require_string("name", seed.get("name", f"Step {order} {letter}")),
            require_string("status", seed.get("status", "live")),
            new_thread,
            subject,
            seed.get("body_text", "Hi {{first_name}}, a word about {{company_name}}?"),
            **counts,
            rates=None if seed.get("rates") is None else rates.with_changes(seed["rates"]),
        )

    def _build_counts(self, seed: Mapping[str, Any], sent: int) -> dict[str, int]:
        if sent:
            opened = int(sent * self.random.uniform(0.4, 0.6))
            shares = {"clicked_num": (0.03, 0.12), "replied_num": (0.04, 0.14), "unsubscribed_num": (0.0, 0.03)}
            responses = {name: int(opened * self.random.uniform(*share)) for name, share in shares.items()}
            return {"sent": sent, "opened_num": opened} | responses
        counts = {name: require_count(name, seed.get(name, 0)) for name in COUNT_NAMES}
        sent, opened, clicked, replied, unsubscribed = counts.values()
        if not max(clicked, replied, unsubscribed) <= opened <= sent:
            raise ValueError(f"expected clicked_num, replied_num and unsubscribed_num <= opened_num <= sent, got {counts}")
        return counts


def _check_campaign_counts(campaign: Campaign) -> None:
    """Check the counts that are not kept per template: the campaign's interested replies and bounces (rule T10)."""
    replies, sent, opens = (campaign.total(count) for count in ("replied_num", "sent", "opened_num"))
    if require_count("interested_num", campaign.interested_num) > replies:
        raise ValueError(f"interested_num: expected at most {replies}, the number of replies, got {campaign.interested_num}")
    if campaign.bounces_num > sent - opens:
        unopened = sent - opens
        raise ValueError(f"bounces_num: expected at most {unopened}, the number of unopened e-mails, got {campaign.bounces_num}")
