"""The rules of the audit: the texts and thresholds from `data/rules.toml`, each with its condition."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from outreach_async.audit import _campaign_conditions as campaigns
from outreach_async.audit import _conditions as mailboxes
from outreach_async.audit._findings import Condition, Rule, RuleScope, Severity

_LACKS: Final = {"OA101": "SPF record", "OA102": "DKIM signature", "OA103": "DMARC policy"}

_CONDITIONS: Final[dict[str, Condition]] = {
    "OA101": mailboxes.missing_authentication("spf", _LACKS["OA101"]),
    "OA102": mailboxes.missing_authentication("dkim", _LACKS["OA102"]),
    "OA103": mailboxes.missing_authentication("dmarc", _LACKS["OA103"]),
    "OA104": mailboxes.check_authentication,
    "OA110": mailboxes.check_blacklists,
    "OA120": mailboxes.check_bounce_rate,
    "OA121": mailboxes.check_figures,
    "OA130": mailboxes.check_daily_limit,
    "OA131": mailboxes.check_provider_limit,
    "OA132": mailboxes.check_warm_up,
    "OA133": mailboxes.check_unused_capacity,
    "OA140": mailboxes.check_activity,
    "OA141": mailboxes.check_status,
    "OA150": mailboxes.check_open_rate,
    "OA151": mailboxes.check_automated_opens,
    "OA160": mailboxes.check_domain_ip,
    "OA190": mailboxes.check_known_values,
    "OA170": mailboxes.check_domain_size,
    "OA171": mailboxes.check_bulk_authentication,
    "OA172": mailboxes.check_shared_server,
    "OA201": campaigns.check_sending,
    "OA202": campaigns.check_content,
    "OA203": campaigns.check_end,
    "OA205": campaigns.check_stale_draft,
    "OA206": campaigns.check_paused,
    "OA210": campaigns.check_campaign_bounces,
    "OA211": campaigns.check_replies,
    "OA212": campaigns.check_unsubscribes,
    "OA213": campaigns.check_campaign_figures,
    "OA290": campaigns.check_known_states,
    "OA204": campaigns.check_slip,
    "OA220": campaigns.check_live_templates,
    "OA221": campaigns.check_step_status,
    "OA222": campaigns.check_placeholders,
    "OA240": campaigns.check_unused_limits,
}
"""The conditions of the rules that a policy can turn off or adjust. A comparison applies OA204, and an audit all others."""


def _load() -> Iterator[Rule]:
    text = (files("outreach_async.audit") / "data" / "rules.toml").read_text(encoding="utf-8")
    for name, values in tomllib.loads(text).items():
        yield Rule(
            id=name,
            severity=Severity(values.pop("severity")),
            thresholds=MappingProxyType(values.pop("thresholds", {})),
            others=tuple(map(Severity, values.pop("others", ()))),
            applies=_CONDITIONS.get(name, lambda _facts, _thresholds: None),
            lack=_LACKS.get(name),
            **values,
        )


CATALOGUE: Final[dict[str, Rule]] = {rule.id: rule for rule in _load()}
"""Every rule by id.

Example:
    ```python
    print(CATALOGUE["OA901"].title)  # -> Workspace not read
    ```
"""

RULES: Final = tuple(CATALOGUE[name] for name in _CONDITIONS)
"""Every rule that a policy can turn off or adjust.

Example:
    ```python
    print([rule.id for rule in RULES if rule.scope == "domain"])  # -> ['OA170', 'OA171']
    ```
"""

COMPARISON_RULES: Final = (CATALOGUE["OA204"],)
"""The rules that compare a campaign in two audits."""


def _with_scope(scope: RuleScope) -> tuple[Rule, ...]:
    """Return the rules about one kind of subject, in the order in which its findings are listed."""
    return tuple(rule for rule in RULES if rule.scope == scope and rule not in COMPARISON_RULES)


MAILBOX_RULES: Final = _with_scope("mailbox")
DOMAIN_RULES: Final = _with_scope("domain")
SERVER_RULES: Final = _with_scope("server_ip")
CAMPAIGN_RULES: Final = _with_scope("campaign")
STEP_RULES: Final = _with_scope("step")
WORKSPACE_RULES: Final = _with_scope("workspace")

READING_RULES: Final = tuple(rule for rule in CATALOGUE.values() if rule.id not in _CONDITIONS)
"""Rules about errors while reading. A policy cannot turn them off. Their findings make the audit incomplete."""

(
    UNREADABLE, UNDECODABLE, MISSING,
    CAMPAIGNS_UNREAD, CAMPAIGN_UNDECODABLE, CAMPAIGNS_MISSING, STEPS_UNREAD, FIELDS_UNREAD,
) = READING_RULES  # fmt: skip

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)

ABOUT_CAMPAIGNS: Final = frozenset(
    rule.id for rule in (*CAMPAIGN_RULES, *COMPARISON_RULES, *STEP_RULES, *WORKSPACE_RULES, *READING_RULES[3:])
)
"""Ids of the rules about campaigns, their steps and errors while reading them. Only an audit of campaigns applies these rules."""


def rule_title(name: str) -> str:
    """Return the title of the rule with this id, or the id itself if the rule is not in the catalogue."""
    return CATALOGUE[name].title if name in CATALOGUE else name


UNKNOWABLE: Final[tuple[str, ...]] = (
    "complaint rates (Gmail's limit is 0.3 %): see Google Postmaster Tools",
    "the DMARC policy itself (p=): look up the TXT record at `_dmarc.<domain>`",
    "the names of the blacklists that list a mailbox (the service shows only their number)",
    "the number of DNS lookups of an SPF record (the limit is 10)",
)
"""Properties that an audit cannot check, because the service's fields do not show them. Human-readable reports list them."""

UNKNOWABLE_OF_CAMPAIGNS: Final[tuple[str, ...]] = (
    "open rates of campaigns: Apple Mail loads the images of e-mails that nobody opens, so opens prove nothing",
)
"""Properties that an audit of campaigns cannot check."""
