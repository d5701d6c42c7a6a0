"""Compare the A/B variants of a step by their replies, so that looking at the result every day does not cause false verdicts.

A report shows the verdict of each step whose e-mail has variants:

- `better`: one variant gets more replies than another.
- `too_early`: no difference is proven yet. `sends_needed` estimates how many more e-mails each variant needs to prove the
  difference, if the rates stay the same.
- `too_few_days`: the numbers show a difference, but the campaign was created less than 7 days ago, or its age is unknown.
- `unequal_sends`: in every pair of variants, the numbers of e-mails sent differ by more than 10 %, so no pair can be compared.
- `not_compared`: fewer than two variants can be compared, or more than 26.

A policy can change three thresholds of the rule `OA230`: `odds` is the required evidence (by default 20), `difference` is the
maximum relative difference between the numbers of e-mails sent (by default 0.10), and `days` is the minimum age of the campaign
(by default 7).

Conditions
----------
A verdict holds only if the service assigns the variants independently of the recipients, one by one. The API documentation does
not state how it assigns them, and an audit cannot check it. If recipients who reply together, such as the people of one company,
get the same variant, their replies count as several pieces of evidence although they are one: with reply rates of 2 to 10 %, 6 to
12 % of 1,000 simulated tests of equal variants had a false verdict if such recipients came in pairs, and 55 to 72 % in groups of
five. Before you turn off a variant, ask the service's support how it assigns variants.

A verdict also needs several days with data, because the replies of one day's recipients may differ from those of other days. The
service returns no numbers by day, so check that the campaign has really sent e-mails on that many days.

Method
------
The usual test of two proportions is designed for a single look at the end. If a reader looks every day, and stops at the first
"significant" difference, almost half of all tests of equal variants end with a false verdict. The comparison here is an e-process
(Turner, Ly and Grünwald: arXiv 2106.02693), a running measure of the evidence against the hypothesis that both variants have the
same reply rate. By Ville's inequality, the evidence reaches 20 in at most 5 % of all tests of equal variants, however often one
looks. The evidence is the beta-binomial likelihood of both totals, divided by their likelihood under the common rate that
explains the totals best. In a step with more than two variants, the evidence of a pair must reach 20 times the number of pairs.

The bound was checked with 4,000 simulated tests of equal variants over a year, read once a day with 50 e-mails a day for each
variant. At most 0.6 % had a false verdict; with a z-test at the 5 % level, 44 to 48 % had one. If one reply rate is twice the
other, half of the tests find the difference within about 1,800 e-mails per variant (2 % against 4 %), 1,100 (3 % against 6 %) or
800 (5 % against 10 %).

The service returns totals only, so the contacts of both variants must be exchangeable. A variant that started late got other
contacts, on other days. Variants are therefore compared only if their numbers of e-mails differ by at most 10 %. This reduces the
error but does not remove it: if contacts of the first two weeks reply twice as often, and a variant starts after these weeks,
0.6 % of the simulated tests have a false verdict (95 % with the z-test), and 10 % with 200 e-mails a day and reply rates of 20 %
and 10 %. To compare a new variant fairly, restart all variants of the step.

Personalized templates (`PER`) are never compared, because the service does not choose their contacts at random. Opens and clicks
are not compared, because Apple Mail and link scanners cause many of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final, Literal

import attrs

Verdict = Literal["better", "too_early", "too_few_days", "unequal_sends", "not_compared"]

_PRIOR_REPLIES: Final = 2.0
_PRIOR_SILENCES: Final = 50.0
"""Parameters of the prior of each variant's reply rate: a beta distribution with a mean of 4 %. The limit on false verdicts
holds for any prior. A prior close to the reply rates of cold e-mail (1 to 10 %) finds a difference sooner."""

MAX_EVIDENCE: Final = 1e12
"""Maximum evidence in a report. Larger values are capped, because JSON cannot represent infinity."""

_MAX_SENDS: Final = 10_000_000
_MAX_COMPARED: Final = 26
"""Maximum number of variants in a comparison, one for each letter."""


@attrs.frozen
class VariantTotals:
    """The service's totals of one variant."""

    letter: str
    sent: int
    replied: int


@attrs.frozen(kw_only=True)
class VariantVerdict:
    """The result of comparing the variants of a step."""

    verdict: Verdict
    better: str | None = None
    worse: tuple[str, ...] = ()
    evidence: float | None = None
    sends_needed: int | None = None


def compare_variants(variants: Sequence[VariantTotals], *, odds: float = 20, difference: float = 0.10) -> VariantVerdict:
    """Compare the variants of a step by their replies. This function performs no I/O."""
    if not 1 < len(variants) <= _MAX_COMPARED:
        return VariantVerdict(verdict="not_compared")
    pairs = list(combinations(variants, 2))
    needed = math.log(odds * len(pairs))
    compared = [(log_evidence(one, other), one, other) for one, other in pairs if _are_balanced(one, other, difference)]
    if not compared:
        return VariantVerdict(verdict="unequal_sends")
    strongest, one, other = max(compared, key=lambda each: each[0])
    evidence = _to_evidence(strongest)
    if strongest < needed:
        return VariantVerdict(verdict="too_early", evidence=evidence, sends_needed=_estimate_sends(one, other, needed))
    better, _ = _by_rate(one, other)
    decided = [_by_rate(*pair) for value, *pair in compared if value >= needed]
    worse = tuple(loser.letter for winner, loser in decided if winner is better)
    return VariantVerdict(verdict="better", better=better.letter, worse=worse, evidence=evidence)


def _are_balanced(one: VariantTotals, other: VariantTotals, difference: float) -> bool:
    least, most = sorted((one.sent, other.sent))
    return least > 0 and most - least <= difference * most


def _by_rate(*pair: VariantTotals) -> list[VariantTotals]:
    """Return the variants by their reply rates, the highest rate first."""
    return sorted(pair, key=lambda each: each.replied / each.sent, reverse=True)


def _to_evidence(log_value: float) -> float:
    return MAX_EVIDENCE if log_value >= math.log(MAX_EVIDENCE) else round(math.exp(log_value), 3)


def log_evidence(one: VariantTotals, other: VariantTotals) -> float:
    """Return the natural logarithm of the e-value against the hypothesis that both variants have the same reply rate."""
    sent, replied = one.sent + other.sent, one.replied + other.replied
    rate = replied / sent
    # The common rate that explains the totals best has the largest likelihood, so dividing by it gives the smallest value.
    best = sum(count * math.log(share) for count, share in ((replied, rate), (sent - replied, 1 - rate)) if count)
    return _log_mixture(one) + _log_mixture(other) - best


def _log_mixture(variant: VariantTotals) -> float:
    """Return the logarithm of the likelihood of a variant's replies, averaged over the prior of the reply rate."""
    silent = variant.sent - variant.replied
    return _log_beta(_PRIOR_REPLIES + variant.replied, _PRIOR_SILENCES + silent) - _LOG_PRIOR


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


_LOG_PRIOR: Final = _log_beta(_PRIOR_REPLIES, _PRIOR_SILENCES)


def _estimate_sends(one: VariantTotals, other: VariantTotals, needed: float) -> int | None:
    """Estimate how many more e-mails per variant are needed to prove a difference, if the rates stay the same."""
    # Return `None` if more than ten million e-mails per variant would be needed.
    sent = max(one.sent, other.sent)
    low, high = sent, sent
    while log_evidence(_scale(one, high), _scale(other, high)) < needed:
        low, high = high, 2 * high
        if high > _MAX_SENDS:
            return None
    while high - low > max(1, low // 100):  # a precision of one percent is enough for an estimate
        middle = (low + high) // 2
        proven = log_evidence(_scale(one, middle), _scale(other, middle)) >= needed
        low, high = (low, middle) if proven else (middle, high)
    return _round_up(high - sent)


def _round_up(count: int) -> int:
    """Round an estimate up to two significant digits, because more digits would suggest a false precision."""
    unit = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // unit) * unit


def _scale(variant: VariantTotals, sent: int) -> VariantTotals:
    return VariantTotals(variant.letter, sent, round(variant.replied * sent / variant.sent))
