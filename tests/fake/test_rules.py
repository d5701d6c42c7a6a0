"""Every rule of the service has a test: the ids of all rules, searched for in the names of tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.tables import check_rows

from outreach_async.fake import behaviour

RULES = {
    "w1": "five operations, JSON bodies, paths relative to the base URL",
    "w2": "lists say ok; a creation says its outcome",
    "w3": "every id carries its prefix",
    "w4": "every field is present in every item",
    "w5": "ids are a prefix and 16 hex digits of a seeded counter",
    "w6": "unknown paths, other methods, trailing slashes, HEAD",
    "w7": "a body of another content type",
    "w8": "what is not strict JSON, or too long",
    "w9": "whole percentages are integers",
    "w10": "timestamps are Unix seconds",
    "w11": "header fields of every answer",
    "w12": "campaign ids are global",
    "a1": "contact creation carries the owner key in the body",
    "a2": "what is wrong with an owner key",
    "a3": "reads need no credential",
    "a4": "the order of checks",
    "p1": "parameters and members of a page",
    "p2": "at most 2,000 mailboxes a page",
    "p3": "the first page is 1",
    "p4": "missing and empty parameters",
    "p5": "what is no number",
    "p6": "more than the maximum",
    "p7": "campaigns have no maximum",
    "p8": "a page past the end",
    "p9": "the number of pages",
    "p10": "the order of lists",
    "p11": "each page is of its own instant",
    "p12": "repeated and unknown parameters",
    "p13": "unknown workspaces and ids of another kind",
    "p14": "saved columns",
    "c1": "what a duplicate is",
    "c2": "the four outcomes",
    "c3": "their statuses",
    "c4": "which e-mails are the same",
    "c5": "a duplicate keeps its owner",
    "c6": "required members",
    "c7": "a missing campaign",
    "c8": "strict_validation is a boolean",
    "c9": "the three duplicates options",
    "c10": "skip changes nothing",
    "c11": "overwrite and fields not sent",
    "c12": "overwrite and blank values",
    "c13": "update_missing_fields",
    "c14": "null and other types",
    "c15": "the spelling of the e-mail",
    "c16": "joining a campaign",
    "c17": "unknown and foreign campaigns",
    "c18": "campaigns of every status take contacts",
    "c19": "codes of custom fields",
    "c20": "unknown custom fields",
    "c21": "other unknown fields",
    "c22": "names are not derived",
    "c23": "a refusal changes nothing",
    "c24": "one of many racers adds",
    "c25": "a retry after a lost answer",
    "c26": "strict validation off",
    "c27": "strict validation on",
    "c28": "it comes before the duplicate test",
    "t1": "order, status, type and wait of steps",
    "t2": "steps come in order",
    "t3": "left, sent and the whole",
    "t4": "who left early is not counted",
    "t5": "enrolling counts everywhere",
    "t6": "subjects and threads",
    "t7": "letters and rotation",
    "t8": "how percentages are rounded",
    "t9": "counts are unique per e-mail",
    "t10": "campaigns sum their templates",
    "t11": "initials",
    "t12": "what a wait runs from",
    "t13": "days left",
    "t14": "finished and not started",
    "t15": "nothing that sends",
    "t16": "how dates are written",
    "t17": "what is not live",
    "t18": "relative texts",
    "t19": "statuses that nobody saw",
    "b1": "types and statuses of mailboxes",
    "b2": "windows of days",
    "b3": "opens and bounces by day of sending",
    "b4": "rates over the mailbox's life; its campaigns",
    "b5": "one daily limit for all campaigns",
    "f1": "standard and custom fields",
    "f2": "their order",
    "e1": "a duplicate is no error",
    "e2": "the shape of refusals",
    "e3": "hints",
    "e4": "rate limits",
}
"""Every rule by its id, as the docstrings and comments of the fake refer to it."""

HERE = Path(__file__).parent
FAKE = HERE.parents[1] / "outreach_async" / "fake"


@cache
def names() -> tuple[str, ...]:
    return tuple(_names())


def _names() -> Iterator[str]:
    for path in sorted(HERE.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield node.name


def ids(name: str) -> set[str]:
    """Return the rules that the start of a test's name refers to: `t8`, `t1_and_t2`, `b2_to_b4`."""
    found = re.match(r"test_([a-z]\d+)(?:_(and|to)_([a-z]\d+))?_", name)
    if not found:
        return set()
    first, joint, last = found.groups()
    if joint == "to":
        return {f"{first[0]}{number}" for number in range(int(first[1:]), int(last[1:]) + 1)}
    return {first} | ({last} if last else set())


def test_every_rule_has_a_test_named_after_it() -> None:
    tested = set().union(*map(ids, names()))

    def check(rule: str, _meaning: str) -> None:
        assert rule in tested

    check_rows(RULES.items(), check)


def test_no_test_is_named_after_an_unknown_rule() -> None:
    assert set().union(*map(ids, names())) <= set(RULES)


def test_the_code_refers_only_to_known_rules() -> None:
    cited = set()
    for path in FAKE.rglob("*.py"):
        for found in re.findall(r"rules? ((?:[A-Z]\d+|,| |and|to)+)", path.read_text(encoding="utf-8")):
            cited |= set(re.findall(r"\b[A-Z]\d+\b", found))
    for rules in re.findall(r"^\| ([A-Z]\d[^|]*) \|", str(behaviour.__doc__), re.MULTILINE):  # the table of interpretations
        cited |= set(rules.split(", "))
    assert {rule.lower() for rule in cited} <= set(RULES)
    assert len(cited) > 60
