from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support.audit import mailbox, mailboxes, reading, report
from support.tables import check_rows

from outreach_async.audit import CATALOGUE, RULES, Policy, Severity, check, explain
from outreach_async.errors import InvalidRequest


def policy(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "ours.toml"
    path.write_text(text, encoding="utf-8")
    return Policy.load(path)


def test_a_policy_disables_rules_and_changes_thresholds(tmp_path: Path) -> None:
    ours = policy(tmp_path, 'off = ["OA160"]\n[OA120]\nwarning = 0.03\n[OA170]\nmailboxes = 2\n')
    assert check(mailbox(domain_ip=None), ours) == []
    assert [one.rule for one in check(mailbox(domain_ip=None))] == ["OA160"]
    assert check(mailbox(bounced_30days=28), ours) == []
    assert [one.rule for one in report(reading(mailboxes(3)), policy=ours).findings] == ["OA170"]


def test_every_rule_can_be_disabled() -> None:
    def check(rule: str) -> None:
        boxes = [
            mailbox(id=f"mailbox_{n}", type="SMTP & IMAP", spf=False, sent_30days=20_000, blacklists=n, domain_ip=None)
            for n in range(6)
        ]
        found = {one.rule for one in report(reading(boxes)).findings}
        remaining = {one.rule for one in report(reading(boxes), policy=Policy.of({"off": [rule]})).findings}

        assert found >= {"OA101", "OA110", "OA160", "OA170", "OA171", "OA172"}
        assert remaining == found - {rule} - ({"OA171"} if rule == "OA101" else set())

    check_rows(((rule.id,) for rule in RULES), check)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"OA12O": {}}, "expected a known key or rule id, got 'OA12O'; did you mean 'OA120'"),
        ({"of": []}, "expected a known key or rule id, got 'of'; did you mean 'off'"),
        ({"x": 1}, "expected a known key or rule id, got 'x'"),
        ({"y" * 99: 1}, "expected a known key or rule id, got 'y{40}...'"),
        ({"off": ["OA16"]}, "off: expected a known key or rule id, got 'OA16'; did you mean 'OA16"),
        ({"off": [7]}, "off: expected a rule id, got int"),
        ({"off": "OA160"}, "off: expected a list of rule ids, got str"),
        ({"off": ["OA901"]}, "off: expected a rule that a policy can change, got OA901"),
        ({"OA902": {}}, "expected a rule that a policy can change, got OA902"),
        (
            {"OA120": {"warnin": 1}},
            "OA120: expected one of the thresholds warning, error, critical, sample, got 'warnin'; did you mean 'warning'",
        ),
        ({"OA160": {"warning": 1}}, "OA160: expected no thresholds, got 'warning'"),
        ({"OA160": False}, "OA160: expected a table of thresholds, got bool; to turn the rule off, add its id to the list `off`"),
        ({"OA120": {"warning": True}}, "OA120.warning: expected a number, got bool"),
        ({"OA120": {"warning": "2 %"}}, "OA120.warning: expected a number, got str"),
        ({"OA120": {"warning": -1}}, "OA120.warning: expected a finite number of at least 0, got -1"),
        ({"OA120": {"warning": float("nan")}}, "expected a finite number of at least 0, got nan"),
        ({"OA120": {"warning": float("inf")}}, "expected a finite number of at least 0, got inf"),
        ({"OA120": {"warning": 0.06}}, "OA120.error: expected at least 0.06 \\(the value of warning\\), got 0.05; raise it"),
        ({"name": 3}, "name: expected a string, got int"),
    ],
)
def test_invalid_policies_are_refused_with_the_nearest_valid_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Policy.of(values)


@pytest.mark.parametrize("content", [b"= 3", b"\xff"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"policy bad.toml: expected TOML in UTF-8"):
        Policy.load(str(tmp_path / "bad.toml"))


def test_a_report_names_the_policy_it_was_judged_by(tmp_path: Path) -> None:
    ours = policy(tmp_path, 'off = ["OA172", "OA160"]\nOA120.sample = 100.0\nOA170.mailboxes = 5\n')
    used = report(reading([]), policy=ours).policy
    assert (used.name, used.off, used.thresholds) == ("ours", ["OA160", "OA172"], {"OA120": {"sample": 100}})
    assert report(reading([])).policy == Policy()


def test_policies_with_the_same_changes_have_the_same_fingerprint() -> None:
    one = Policy.of({"name": "one", "off": ["OA160", "OA133"], "OA110": {"error": 2}, "OA120": {"sample": 60, "warning": 0.03}})
    same = Policy.of(
        {"name": "two", "OA120": {"warning": 0.03, "sample": 60.0}, "OA110": {"error": 2}, "off": ["OA133", "OA160"]}
    )
    other = Policy.of({"off": ["OA160", "OA133"], "OA110": {"error": 3}})

    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 12
    assert Policy.of({"name": "default in all but name", "OA110": {"error": 1}}).fingerprint == ""


def test_explain_gives_a_rules_threshold_source_and_remedy() -> None:
    text = explain("oa120")

    assert text.startswith(
        "OA120  High bounce rate\nSeverity: info to critical\n"
        "Score: a mailbox keeps 100 % with severity info, 90 % with severity warning, 50 % with severity error, "
        "10 % with severity critical\nCondition: bounced_30days / sent_30days is 2 % or more"
    )
    assert "Thresholds: warning 0.02, error 0.05, critical 0.1, sample 50\nSource: Amazon SES" in text
    assert text.endswith("e-mails a day.")


def test_the_severities_of_a_rule_are_those_of_its_findings() -> None:
    boxes = [mailbox(id=f"mailbox_{n}", blacklists=n, bounced_30days=n * 20) for n in range(7)]
    boxes += [mailbox(id="mailbox_x", daily_limit=limit) for limit in (200, 600, 3000)]
    found: defaultdict[str, set[Severity]] = defaultdict(set)
    for each in boxes:
        for one in check(each):
            found[one.rule].add(one.severity)

    for rule in ("OA110", "OA120", "OA131"):
        assert found[rule] == set(CATALOGUE[rule].severities)
    assert all(severities <= set(CATALOGUE[rule].severities) for rule, severities in found.items())


def test_explain_uses_the_thresholds_of_the_policy() -> None:
    ours = Policy.of({"off": ["OA131"], "OA131": {"warning": 80}})
    assert "daily_limit is above 80, or above 40 while the mailbox is younger than 365 days" in explain("OA131", ours)
    assert "Severity: warning to critical (turned off by the policy)" in explain("OA131", ours)
    assert "Thresholds: none" in explain("OA901", ours)


def test_every_rule_is_explained_and_an_unknown_one_refused_with_the_nearest() -> None:
    assert [rule for rule in CATALOGUE if "{" in explain(rule) or len(explain(rule).splitlines()) != 7] == []
    refusal = r"rule: expected the id of a rule, such as OA120, got 'OA12'; did you mean 'OA12\d'\?"
    with pytest.raises(InvalidRequest, match=refusal):
        explain("OA12")
    with pytest.raises(InvalidRequest, match=r"rule: expected the id of a rule, such as OA120, got '7'; pass a key of"):
        explain(7)  # type: ignore[arg-type]
