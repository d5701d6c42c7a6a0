"""Check a service against every rule that the interface states and that can be observed."""

from __future__ import annotations

from itertools import islice
from typing import Final

import attrs

from outreach_async.conformance.calibration import Measurement, measure_service
from outreach_async.conformance.creation_rules import CREATION_RULES
from outreach_async.conformance.item_rules import ITEM_RULES
from outreach_async.conformance.page_rules import ANSWER_RULES, PAGE_RULES
from outreach_async.conformance.rule import RuleSubject, StatedRule
from outreach_async.conformance.target import Patience, Site
from outreach_async.responses import mask_string
from outreach_async.transport.wire import Transport

_MAX_BREACHES: Final = 3


@attrs.frozen
class Breach:
    """A violation of a rule that the interface states.

    Attributes:
        rule: The id of the rule.
        says: The rule, as the interface states it.
        what: The location in the response, and the violation.
        request: Method and target of the request.
        answered: The response of the service, shortened and with secrets masked, or the reason why no response arrived.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", daily_limit="many")
        (breach,) = await check(FakeTransport(fake), Site("space_1"))
        print(breach.rule, breach.what)  # -> W4 data[1] daily_limit is a string, not a number
        ```
    """

    rule: str
    says: str
    what: str
    request: str
    answered: str

    def __str__(self) -> str:
        context = f"interface: {self.says}", f"request: {self.request}", f"response: {self.answered}"
        return "\n  ".join((f"{self.rule}: {self.what}", *context))


def find_breaches(rule: StatedRule, measured: Measurement) -> list[Breach] | None:
    """Return the first violations of a rule.

    Returns:
        At most three violations; `None` if the rule applies to nothing that was observed.
    """
    subjects = list(rule.subjects(measured))
    if not subjects:
        return None
    faults = ((subject, fault) for subject in subjects for fault in rule.find_faults(subject.value))
    return [_build_breach(rule, subject, fault, measured.site) for subject, fault in islice(faults, _MAX_BREACHES)]


def _build_breach(rule: StatedRule, subject: RuleSubject, fault: str, site: Site) -> Breach:
    exchange = subject.exchange
    answered = exchange.error if exchange.response is None else site.format_response(exchange.response)
    what, request = f"{subject.location} {fault}", f"{exchange.request.method} {exchange.request.target}"
    return Breach(rule.id, rule.statement, mask_string(what, site.secrets), mask_string(request, site.secrets), answered)


async def check(transport: Transport, site: Site, patience: Patience | None = None) -> list[Breach]:
    """Check a service against every rule that the interface states and that can be observed.

    Args:
        transport: The transport to the service. It is not closed.
        site: The workspace and credentials.
        patience: Time limits of the requests; the default is `Patience()`.

    Returns:
        The violations, at most three per rule.

    Example:
        ```python
        print(await check(FakeTransport(fake), Site("space_1")))  # -> []
        ```
    """
    measured = await measure_service(transport, site, patience or Patience())
    return [breach for rule in RULES for breach in find_breaches(rule, measured) or ()]


RULES: Final[tuple[StatedRule, ...]] = (*ANSWER_RULES, *PAGE_RULES, *ITEM_RULES, *CREATION_RULES)
"""All rules that the interface states and that can be observed."""
