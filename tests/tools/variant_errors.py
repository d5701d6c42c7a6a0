"""Measure how often daily comparisons of A/B variants give a false verdict, and how soon they find a real difference.

    python -m tools.variant_errors --runs 20000

Two variants with equal reply rates send e-mails every day; replies arrive days later. Each day, two methods compare the totals:
the audit's comparison, and the usual two-sided z-test of two proportions at the 5 % level. A run counts as wrong if any day has a
verdict.
"""

from __future__ import annotations

import argparse
import math
from typing import Final

import attrs
import numpy as np
import numpy.typing as npt

from outreach_async.audit.variants import VariantTotals, compare_variants, log_evidence

_Z_TWO_SIDED: Final = 1.96
_BOOSTED_DAYS: Final = 14
_LEAST_EVIDENCE: Final = math.log(20)
Counts = npt.NDArray[np.int64]


@attrs.frozen(kw_only=True)
class Experiment:
    """A test of two variants."""

    rate: float = 0.05
    other_rate: float = 0.05
    late: int = 0
    days: int = 365
    sends: int = 50
    delay: float = 1
    boost: float = 1
    cluster: int = 1


@attrs.frozen(kw_only=True)
class VerdictCounts:
    """Numbers of runs with a verdict on any day."""

    verdicts: int
    naive: int
    median_sends: float


def count_verdicts(experiment: Experiment, *, runs: int, seed: int, difference: float = 0.10) -> VerdictCounts:
    """Simulate an experiment many times, and compare its totals every day."""
    chance = np.random.default_rng(seed)
    sent = np.full(experiment.days, experiment.sends, dtype=np.int64)
    other_sent = np.where(np.arange(experiment.days) < experiment.late, 0, sent)
    rates = np.where(np.arange(experiment.days) < _BOOSTED_DAYS, experiment.boost, 1)
    found: list[int] = []
    naive, cluster = 0, experiment.cluster
    for _ in range(runs):
        one, other = (
            (each.cumsum(), cluster * draw_replies(chance, each // cluster, rate * rates, experiment.delay))
            for each, rate in ((sent, experiment.rate), (other_sent, experiment.other_rate))
        )
        naive += _is_ever_significant(*one, *other)
        if (sends := _first_verdict(*one, *other, difference)) is not None:
            found.append(sends)
    return VerdictCounts(verdicts=len(found), naive=naive, median_sends=float(np.median(found)) if found else 0.0)


def draw_replies(chance: np.random.Generator, sent: Counts, rates: npt.NDArray[np.float64], delay: float) -> Counts:
    """Return the total number of replies at the end of each day, given the reply rate of each day's e-mails."""
    arrived = np.zeros(len(sent), dtype=np.int64)
    days = np.repeat(np.arange(len(sent)), chance.binomial(sent, rates))
    at = days + chance.geometric(1 / (1 + delay), len(days)) - 1
    np.add.at(arrived, at[at < len(sent)], 1)
    return arrived.cumsum()


def _is_ever_significant(sent: Counts, replied: Counts, other_sent: Counts, other_replied: Counts) -> bool:
    used = (other_sent > 0) & (replied + other_replied > 0)
    n, x, m, y = (totals[used] for totals in (sent, replied, other_sent, other_replied))
    pooled = (x + y) / (n + m)
    z = np.abs(x / n - y / m) / np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return bool((z > _Z_TWO_SIDED).any())


def _first_verdict(sent: Counts, replied: Counts, other_sent: Counts, other_replied: Counts, difference: float) -> int | None:
    for n, x, m, y in zip(*(totals.tolist() for totals in (sent, replied, other_sent, other_replied)), strict=True):
        pair = [VariantTotals("A", n, x), VariantTotals("B", m, y)]
        # Skip days with too little evidence: they have no verdict, and `compare_variants` is slow to estimate the e-mails needed.
        if m and log_evidence(*pair) >= _LEAST_EVIDENCE and compare_variants(pair, difference=difference).better is not None:
            return int(m)
    return None


def main() -> None:
    """Print the rate of false verdicts for equal variants, also after a late start, and how soon real differences are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for late in (0, 7, 14):
        for boost in (1, 2):
            counts = count_verdicts(Experiment(late=late, boost=boost), runs=arguments.runs, seed=arguments.seed)
            wrong, naive = (100 * count / arguments.runs for count in (counts.verdicts, counts.naive))
            about = f"{late:2} days late, {boost} x replies in the first two weeks"
            print(f"{about}: wrong {wrong:5.2f} %, z-test {naive:5.2f} %")  # noqa: T201 - a command's report
    for rate in (0.02, 0.05, 0.10):
        for cluster in (2, 5):
            counts = count_verdicts(Experiment(rate=rate, other_rate=rate, cluster=cluster), runs=1000, seed=arguments.seed)
            print(f"{rate:.0%}, {cluster} recipients reply together: wrong {counts.verdicts / 10:.1f} %")  # noqa: T201 - a report
    for rate in (0.02, 0.03, 0.05):
        counts = count_verdicts(Experiment(rate=rate, other_rate=2 * rate, days=120), runs=1000, seed=arguments.seed)
        found = (
            f"found in {counts.verdicts / 10:.1f} % of runs within 120 days, median after {counts.median_sends:,.0f} e-mails each"
        )
        print(f"{rate:.0%} against {2 * rate:.0%}: {found}")  # noqa: T201 - a command's report


if __name__ == "__main__":
    main()
