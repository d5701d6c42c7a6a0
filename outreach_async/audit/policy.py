"""Define policies, which turn rules of an audit off and change their thresholds.

A policy file is TOML, for example:

    name = "our own"
    off = ["OA160"]

    [OA120]
    warning = 0.03

Rules and thresholds that are not listed keep their defaults.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from itertools import pairwise
from operator import eq
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import attrs

from outreach_async._plumbing import parse_toml, require_types, type_name
from outreach_async.audit._findings import HEALTHY_PERCENT, Rule, RuleScope, Severity
from outreach_async.audit._rules import ABOUT_CAMPAIGNS, CATALOGUE, INCOMPLETE, RULES, quote
from outreach_async.errors import InvalidRequest

_KEYS: Final = ("name", "off")
_CORRECTION: Final = "; correct or remove it"  # unless a known name is similar
_FINGERPRINT_LENGTH: Final = 12  # hexadecimal digits; enough to distinguish the policies of one organization


@attrs.frozen(kw_only=True, slots=False)  # pydoc of Python 3.13 fails on what attrs makes of cached properties in slots
class Policy:
    """The rules that an audit applies, as differences from the default.

    `Report.policy` is the policy of its audit.

    Attributes:
        name: `default` for the default policy; otherwise the policy's own
            `name`, the stem of its file name, or `unnamed`.
        fingerprint: Hash of the differences from the default policy; empty
            for the default policy.
        off, thresholds: Ids of the rules that are turned off, and changed
            thresholds by rule id and name.

    Example:
        ```python
        lenient = Policy.of({"name": "ours", "off": ["OA101"]})
        print(lenient.off, (await audit(client, ["space_1"], policy=lenient)).findings)  # -> ['OA101'] []
        ```
    """

    name: str = "default"
    fingerprint: str = ""
    off: list[str] = attrs.field(factory=list)
    thresholds: dict[str, dict[str, float]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        require_types(Policy, attrs.asdict(self, recurse=False), any_text=True)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that are not turned off, with their thresholds.

        `Report.since` applies those with the scope `comparison`.
        """
        return tuple(_apply_thresholds(rule, self) for rule in RULES if rule.id not in self.off)

    @classmethod
    def default(cls) -> Policy:
        """Return the default policy: every rule with its default thresholds.

        Example:
            ```python
            print(Policy.default().name, len(Policy.default().rules))  # -> default 36
            ```
        """
        return _DEFAULT_POLICY

    @classmethod
    def load(cls, path: Path | str) -> Self:
        r"""Read a policy from a TOML file.

        Raises:
            InvalidRequest: The file is not valid TOML, or a key or value
                is invalid.
            OSError: The file cannot be read.

        Example:
            ```python
            Path("policy.toml").write_text('off = ["OA101"]\n')
            print(Policy.load("policy.toml"))
            # -> Policy(name='policy', fingerprint='f16305c0911c', off=['OA101'], thresholds={})
            ```
        """
        path = Path(path)
        try:
            values = parse_toml(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(
                f"policy {path.name}: expected TOML in UTF-8, got invalid content: {error}; correct the file"
            ) from None
        return cls.of({"name": path.stem, **values})

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Create a policy from the keys of a policy file.

        Raises:
            InvalidRequest: A key is unknown, or a value is invalid.

        Example:
            ```python
            print(Policy.of({"OA120": {"warning": 0.03}}).thresholds)  # -> {'OA120': {'warning': 0.03}}
            ```
        """
        name, off = values.get("name", "unnamed"), values.get("off", [])
        if not isinstance(off, list):
            raise InvalidRequest(f'policy: off: expected a list of rule ids, got {type_name(off)}; write off = ["OA160"]')
        ids = {_require_rule_id(each, "off: ") for each in off}
        thresholds = {key: _changed_thresholds(key, value) for key, value in values.items() if key not in _KEYS}
        changed = {key: figures for key, figures in thresholds.items() if figures}
        if not isinstance(name, str):
            raise InvalidRequest(f'policy: name: expected a string, got {type_name(name)}; write name = "ours"')
        off = [rule.id for rule in RULES if rule.id in ids]
        return cls(name=name, off=off, thresholds=changed, fingerprint=_fingerprint(off, changed))

    def rule(self, name: str) -> Rule:
        """Return a rule with this policy's thresholds, even if it is off.

        Raises:
            InvalidRequest: No rule has this id.

        Example:
            ```python
            print(Policy.of({"OA170": {"mailboxes": 3}}).rule("OA170").condition)  # -> more than 3 mailboxes share a domain
            ```
        """
        return _apply_thresholds(require_rule(name, "pass a key of `CATALOGUE`"), self)


def rules_about(policy: Policy, scope: RuleScope) -> tuple[Rule, ...]:
    """Return the rules about one kind of subject, in the order of their findings."""
    return tuple(rule for rule in policy.rules if rule.scope == scope)


def require_rule(name: str, remedy: str, where: str = "rule") -> Rule:
    """Return the rule with an id, in upper or lower case."""
    known, id_ = CATALOGUE, str(name).strip().upper()
    if id_ not in known:
        hint = suggest_name(id_, known) or ";"
        raise InvalidRequest(f"{where}: expected the id of a rule, such as OA120, got {quote(name)}{hint} {remedy}")
    return known[id_]


def explain(name: str, policy: Policy | None = None) -> str:
    r"""Return a description of a rule.

    Its lines are title, severity, condition, thresholds, source, remedy.

    Raises:
        InvalidRequest: No rule has this id.

    Example:
        ```python
        print(explain("OA170").partition("\n")[0])  # -> OA170  Too many mailboxes on a domain
        ```
    """
    policy = policy or Policy.default()
    rule = policy.rule(name)
    kept = [f"{HEALTHY_PERCENT[severity]} % with severity {severity.value}" for severity in rule.severities]
    has_no_score = rule.id in ABOUT_CAMPAIGNS or rule.id in INCOMPLETE
    lines = {
        "Severity": f"{rule.severity_range}{' (turned off by the policy)' if rule.id in policy.off else ''}",
        "Score": "not affected" if has_no_score else f"a mailbox keeps {', '.join(kept)}",
        "Condition": rule.condition,
        "Thresholds": ", ".join(f"{name} {figure:g}" for name, figure in rule.thresholds.items()) or "none",
        "Source": rule.source,
        "Remedy": f"{'If critical, pause first. ' if Severity.CRITICAL in rule.severities else ''}{rule.remedy}",
    }
    return "\n".join([f"{rule.id}  {rule.title}", *(f"{label}: {text}" for label, text in lines.items())])


def _apply_thresholds(rule: Rule, policy: Policy) -> Rule:
    changed = policy.thresholds.get(rule.id)
    return attrs.evolve(rule, thresholds=MappingProxyType({**rule.thresholds, **changed})) if changed else rule


def _require_rule_id(name: object, where: str = "", keys: Iterable[str] = ()) -> str:
    if not isinstance(name, str):
        raise InvalidRequest(f'policy: {where}expected a rule id, got {type_name(name)}; write for example "OA160"')
    if name in INCOMPLETE:
        raise InvalidRequest(f"policy: {where}expected a rule that a policy can change, got {name}; remove it from the policy")
    if name not in CATALOGUE:
        hint = suggest_name(name, [*keys, *(rule.id for rule in RULES)])
        raise InvalidRequest(f"policy: {where}expected a known key or rule id, got {quote(name)}{hint or _CORRECTION}")
    return name


def _changed_thresholds(key: str, value: object) -> dict[str, float]:
    rule = CATALOGUE[_require_rule_id(key, keys=_KEYS)]
    if not isinstance(value, dict):
        raise InvalidRequest(
            f"policy: {key}: expected a table of thresholds, got {type_name(value)};"
            " to turn the rule off, add its id to the list `off`"
        )
    for name in value:
        if name not in rule.thresholds:
            has = f"one of the thresholds {', '.join(rule.thresholds)}" if rule.thresholds else "no thresholds"
            hint = suggest_name(name, rule.thresholds) or _CORRECTION
            raise InvalidRequest(f"policy: {key}: expected {has}, got {quote(name)}{hint}")
    figures = {name: _require_figure(f"{key}.{name}", figure) for name, figure in value.items()}
    known = {**rule.thresholds, **figures}
    # The threshold of a severity is at least that of a milder one.
    graded = [(severity, known[severity]) for severity in Severity if severity in known]
    for (worse, high), (milder, low) in pairwise(graded):
        if high < low:
            raise InvalidRequest(
                f"policy: {key}.{worse}: expected at least {low:g} (the value of {milder}), got {high:g}; raise it"
            )
    return {name: figure for name, figure in figures.items() if figure != rule.thresholds[name]}


def _require_figure(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"policy: {where}: expected a number, got {type_name(value)}; write for example 0.03")
    if not 0 <= value < math.inf:
        remedy = "correct the number, or add the rule's id to the list `off`"
        raise InvalidRequest(f"policy: {where}: expected a finite number of at least 0, got {value}; {remedy}")
    return int(value) if value == int(value) else value


def _fingerprint(off: list[str], thresholds: Mapping[str, Mapping[str, float]]) -> str:
    if not off and not thresholds:
        return ""
    # Thresholds are hashed as floats, because 1 and 1.0 are the same threshold.
    floats = {rule: {name: float(figure) for name, figure in figures.items()} for rule, figures in thresholds.items()}
    return hashlib.sha256(json.dumps([off, floats], sort_keys=True).encode()).hexdigest()[:_FINGERPRINT_LENGTH]


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for a misspelled name, such as `; did you mean 'off'?`; empty if no known name is similar."""
    # If several names are similar, the function suggests the one with the most characters at the same positions as in `name`.
    names = list(known)
    near = set(get_close_matches(name, names, n=len(names) or 1, cutoff=0.5))
    best = max((each for each in names if each in near), key=lambda each: sum(map(eq, name, each)), default=None)
    return f"; did you mean {best!r}?" if best else ""


_DEFAULT_POLICY: Final = Policy()
