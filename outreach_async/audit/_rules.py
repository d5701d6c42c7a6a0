"""The rules of the audit: the texts and thresholds from `data/rules.toml`, each with its condition."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from outreach_async.audit import _campaign_conditions as campaigns
from outreach_async.audit import _conditions as mailboxes
from outreach_async.audit._findings import Rule, RuleScope, Severity


@attrs.frozen(kw_only=True)
class MailboxRule(Rule):
    """A rule about one mailbox.

    Attributes:
        applies: The condition, a function without side effects.
        lack: What a mailbox lacks if the rule applies, such as `SPF record`; `None` if the rule is not about SPF, DKIM or
            DMARC. If `lack` is set, the total daily limit of the domain determines the severity.

    Example:
        ```python
        rule = Policy.default().mailbox_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA101 mailbox No SPF
        ```
    """

    scope: ClassVar[RuleScope] = "mailbox"

    applies: mailboxes.Condition = attrs.field(repr=False)
    lack: str | None = None


@attrs.frozen(kw_only=True)
class DomainRule(Rule):
    """A rule about all mailboxes of a domain.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().domain_rules[0]
        print(rule.id, rule.scope, rule.condition)  # -> OA170 domain more than 5 mailboxes share a domain
        ```
    """

    scope: ClassVar[RuleScope] = "domain"

    applies: mailboxes.DomainCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ServerRule(Rule):
    """A rule about all mailboxes of a sending server.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().server_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA172 server_ip Server shared with a blacklisted mailbox
        ```
    """

    scope: ClassVar[RuleScope] = "server_ip"

    applies: mailboxes.ServerCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class CampaignRule(Rule):
    """A rule about one campaign.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().campaign_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA201 campaign Live but not sending
        ```
    """

    scope: ClassVar[RuleScope] = "campaign"

    applies: campaigns.CampaignCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ComparisonRule(Rule):
    """A rule that compares a campaign in two audits. `Report.since` applies the rule.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        (rule,) = Policy.default().comparison_rules
        print(rule.id, rule.scope, rule.title)  # -> OA204 campaign Estimated end slips
        ```
    """

    scope: ClassVar[RuleScope] = "campaign"

    applies: campaigns.ComparisonCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class StepRule(Rule):
    """A rule about one step of a campaign.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().step_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA220 step Step without live templates
        ```
    """

    scope: ClassVar[RuleScope] = "step"

    applies: campaigns.StepCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class WorkspaceRule(Rule):
    """A rule about the mailboxes and campaigns of a workspace.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        (rule,) = Policy.default().workspace_rules
        print(rule.id, rule.scope, rule.title)  # -> OA240 workspace Unused daily limits
        ```
    """

    scope: ClassVar[RuleScope] = "workspace"

    applies: campaigns.WorkspaceCondition = attrs.field(repr=False)


def _load() -> dict[str, dict[str, Any]]:
    """Read the texts and thresholds of every rule, by id."""
    text = (files("outreach_async.audit") / "data" / "rules.toml").read_text(encoding="utf-8")
    return {
        name: {
            **values,
            "id": name,
            "severity": Severity(values["severity"]),
            "thresholds": MappingProxyType(values.get("thresholds", {})),
            "others": tuple(map(Severity, values.get("others", ()))),
        }
        for name, values in tomllib.loads(text).items()
    }


_TEXTS: Final = _load()

_LACKS: Final = {"OA101": "SPF record", "OA102": "DKIM signature", "OA103": "DMARC policy"}

MAILBOX_RULES: Final[tuple[MailboxRule, ...]] = tuple(
    MailboxRule(applies=condition, lack=_LACKS.get(name), **_TEXTS[name])
    for name, condition in {
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
    }.items()
)
"""The rules about one mailbox, in the order in which a mailbox's findings are listed."""

DOMAIN_RULES: Final[tuple[DomainRule, ...]] = (
    DomainRule(applies=mailboxes.check_domain_size, **_TEXTS["OA170"]),
    DomainRule(applies=mailboxes.check_bulk_authentication, **_TEXTS["OA171"]),
)

SERVER_RULES: Final[tuple[ServerRule, ...]] = (ServerRule(applies=mailboxes.check_shared_server, **_TEXTS["OA172"]),)

CAMPAIGN_RULES: Final[tuple[CampaignRule, ...]] = tuple(
    CampaignRule(applies=condition, **_TEXTS[name])
    for name, condition in {
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
    }.items()
)
"""The rules about one campaign, in the order in which a campaign's findings are listed."""

COMPARISON_RULES: Final[tuple[ComparisonRule, ...]] = (ComparisonRule(applies=campaigns.check_slip, **_TEXTS["OA204"]),)
"""The rules that compare a campaign in two audits."""

STEP_RULES: Final[tuple[StepRule, ...]] = tuple(
    StepRule(applies=condition, **_TEXTS[name])
    for name, condition in {
        "OA220": campaigns.check_live_templates,
        "OA221": campaigns.check_step_status,
        "OA222": campaigns.check_placeholders,
        "OA230": campaigns.check_variants,
    }.items()
)
"""The rules about one step, in the order in which a step's findings are listed."""

WORKSPACE_RULES: Final[tuple[WorkspaceRule, ...]] = (WorkspaceRule(applies=campaigns.check_unused_limits, **_TEXTS["OA240"]),)

UNREADABLE, UNDECODABLE, MISSING = (Rule(**_TEXTS[name]) for name in ("OA901", "OA902", "OA903"))
CAMPAIGNS_UNREAD, CAMPAIGN_UNDECODABLE, CAMPAIGNS_MISSING, STEPS_UNREAD, FIELDS_UNREAD = (
    Rule(**_TEXTS[name]) for name in ("OA911", "OA912", "OA913", "OA914", "OA915")
)
_CAMPAIGN_READING_RULES: Final = (CAMPAIGNS_UNREAD, CAMPAIGN_UNDECODABLE, CAMPAIGNS_MISSING, STEPS_UNREAD, FIELDS_UNREAD)

AdjustableRule: TypeAlias = MailboxRule | DomainRule | ServerRule | CampaignRule | ComparisonRule | StepRule | WorkspaceRule
"""A rule that a policy can turn off or adjust."""

_ABOUT_CAMPAIGNS: Final[tuple[AdjustableRule, ...]] = (*CAMPAIGN_RULES, *COMPARISON_RULES, *STEP_RULES, *WORKSPACE_RULES)

RULES: Final[tuple[AdjustableRule, ...]] = (*MAILBOX_RULES, *DOMAIN_RULES, *SERVER_RULES, *_ABOUT_CAMPAIGNS)
"""Every rule that a policy can turn off or adjust.

Example:
    ```python
    print([rule.id for rule in RULES if rule.scope == "domain"])  # -> ['OA170', 'OA171']
    ```
"""

READING_RULES: Final[tuple[Rule, ...]] = (UNREADABLE, UNDECODABLE, MISSING, *_CAMPAIGN_READING_RULES)
"""Rules about errors while reading. A policy cannot turn them off. Their findings make the audit incomplete."""

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)

ABOUT_CAMPAIGNS: Final = frozenset(rule.id for rule in (*_ABOUT_CAMPAIGNS, *_CAMPAIGN_READING_RULES))
"""Ids of the rules about campaigns, their steps and errors while reading them. Only an audit of campaigns applies these rules."""

CATALOGUE: Final[dict[str, Rule]] = {rule.id: rule for rule in (*RULES, *READING_RULES)}
"""Every rule by id.

Example:
    ```python
    print(CATALOGUE["OA901"].title)  # -> Workspace not read
    ```
"""


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
    "comparisons of personalized templates with A/B variants: the contacts of a personalized template are not chosen at random",
    "whether the service assigns A/B variants independently of the recipients: if not, verdicts about variants may be false",
)
"""Properties that an audit of campaigns cannot check."""
