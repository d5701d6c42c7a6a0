"""The rules of the audit: the texts and thresholds from `data/rules.toml`, each with its condition."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from outreach_async.audit import _conditions
from outreach_async.audit._findings import Rule, Severity


def _load() -> Iterator[Rule]:
    known = {**vars(_conditions), "": lambda _facts, _thresholds: None}
    text = (files("outreach_async.audit") / "data" / "rules.toml").read_text(encoding="utf-8")
    for name, values in tomllib.loads(text).items():
        yield Rule(
            id=name,
            severity=Severity(values.pop("severity")),
            thresholds=MappingProxyType(values.pop("thresholds", {})),
            others=tuple(map(Severity, values.pop("others", ()))),
            applies=known[values.pop("condition", "")],
            **values,
        )


CATALOGUE: Final[dict[str, Rule]] = {rule.id: rule for rule in _load()}
"""Every rule by id.

Example:
    ```python
    print(CATALOGUE["OA901"].title)  # -> Workspace not read
    ```
"""

READING_RULES: Final = tuple(rule for name, rule in CATALOGUE.items() if name.startswith("OA9"))
"""Rules about errors while reading. A policy cannot turn them off. Their findings make the audit incomplete."""

RULES: Final = tuple(rule for rule in CATALOGUE.values() if rule not in READING_RULES)
"""Every rule that a policy can turn off or adjust.

Example:
    ```python
    print([rule.id for rule in RULES if rule.scope == "domain"])  # -> ['OA170', 'OA171']
    ```
"""

(
    UNREADABLE, UNDECODABLE, MISSING,
    CAMPAIGNS_UNREAD, CAMPAIGN_UNDECODABLE, CAMPAIGNS_MISSING, STEPS_UNREAD, FIELDS_UNREAD,
) = READING_RULES  # fmt: skip

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)
ABOUT_CAMPAIGNS: Final = frozenset(rule.id for rule in CATALOGUE.values() if rule.about_campaigns)
"""Ids of the rules about campaigns, their steps and errors while reading them. Only an audit of campaigns applies these rules."""


def rule_title(name: str) -> str:
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
