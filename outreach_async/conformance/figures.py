"""Measure the knobs that ordinary lists reveal (rules W9, T8, T16 and P10). Pure functions from rows to findings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import attrs

from outreach_async.conformance.findings import Finding, among, seen, unseen
from outreach_async.conformance.survey import Survey

ENOUGH: Final = 12
"""Number of identical values taken as proof: if both forms were equally likely, 12 would be alike once in about 2,000 cases."""

Row = Mapping[str, Any]

_CAMPAIGN: Final = ("opens", "interested", "replies", "bounces")
_MAILBOX: Final = ("opened_14days", "avg_open_rate", "avg_click_rate")
_TEMPLATE: Final = ("opened", "clicked", "replied", "unsubscribed")
_DIGITS: Final = (2, 1, 0)
_UNITS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800, "month": 2592000, "year": 31536000}
_AGO: Final = re.compile(rf"([0-9]{{1,6}}|an?) ({'|'.join(_UNITS)})s? ago", re.IGNORECASE)


@attrs.frozen
class Percentage:
    """A percentage as it was written.

    Attributes:
        value: The number; a whole one may be an integer or a float.
        exact: The value before rounding; `None` if its counts are not given.
    """

    value: float
    exact: Fraction | None = None

    @property
    def decimals(self) -> int:
        """Decimal places, without trailing zeros."""
        exponent = Decimal(repr(self.value)).normalize().as_tuple().exponent
        return max(0, -int(exponent))

    def fits(self, digits: int) -> bool:
        """Return whether the value can be the result of rounding to `digits` decimal places."""
        if self.decimals > digits:
            return False
        return self.exact is None or abs(Fraction(repr(self.value)) - self.exact) <= Fraction(1, 2 * 10**digits)


def percentages(survey: Survey) -> list[Percentage]:
    """Return every percentage that was read."""
    listed = [*_values(survey.campaign_rows, _CAMPAIGN), *_values(survey.mailbox_rows, _MAILBOX)]
    return [*map(Percentage, listed), *(found for template in survey.templates for found in _of_template(template))]


def _values(items: Iterable[Row], names: Sequence[str]) -> Iterator[float]:
    return (item[name] for item in items for name in names if _is_number(item.get(name)))


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _of_template(template: dict[str, Any]) -> Iterator[Percentage]:
    sent: Any = template.get("sent")
    for name in _TEMPLATE:
        value: Any = template.get(name)
        count: Any = template.get(f"{name}_num")
        if _is_number(value):
            known = type(sent) is int and type(count) is int and sent > 0
            yield Percentage(value, Fraction(100 * count, sent) if known else None)


def numbers(survey: Survey) -> Finding:
    """Find out how whole percentages are written (rule W9)."""
    whole = [found.value for found in percentages(survey) if not found.decimals]
    integers = sum(type(value) is int for value in whole)
    floats = len(whole) - integers
    how = f"of {len(whole)} whole percentages, {integers} are integers and {floats} floats"
    if not whole:
        return unseen("no whole percentage was read")
    return _one_or_mixed({"int_when_whole": integers, "float": floats}, len(whole), how)


def percent_digits(survey: Survey) -> Finding:
    """Find out to how many decimal places percentages are rounded (rule T8)."""
    found = percentages(survey)
    most = max((percentage.decimals for percentage in found), default=0)
    loose = {percentage.value for percentage in found if percentage.exact is None} - {0, 100}
    how = f"{len(found)} percentages have at most {most} decimal places"
    if most > _DIGITS[0]:
        return unseen(f"{how}, which matches no value of the knob")
    if most == _DIGITS[0] or len(loose) >= ENOUGH:
        return seen(most, how)
    fitting = [digits for digits in _DIGITS if all(percentage.fits(digits) for percentage in found)]
    if not fitting or len(fitting) == len(_DIGITS):
        return unseen(f"{how}: too few to decide")
    return among(fitting, f"{how} and match their counts")


def list_date(survey: Survey) -> Finding:
    """Find out how the campaign list writes dates (rule T16)."""
    dates = [row.get("days_left_date") for row in survey.campaign_rows]
    stamps = sum(map(_is_number, dates))
    # A string without a digit, such as Complete, replaces a date that does not exist.
    texts = sum(isinstance(date, str) and any(map(str.isdigit, date)) for date in dates)
    how = f"of {stamps + texts} dates, {stamps} are numbers and {texts} strings"
    if not stamps and not texts:
        return unseen("no campaign with a date was read")
    return _one_or_mixed({"timestamp": stamps, "text": texts}, stamps + texts, how)


def _one_or_mixed(forms: Mapping[str, int], read: int, how: str) -> Finding:
    """Decide between two forms from how often each occurred, at least one of them. A few of one form may be part of a mixture."""
    if all(forms.values()):
        return seen("mixed", how)
    alike = next(form for form, met in forms.items() if met)
    return seen(alike, how) if read >= ENOUGH else among((alike, "mixed"), how)


def order(survey: Survey) -> Finding:
    """Find out the order of lists (rule P10)."""
    campaigns = _fitting_orders(survey.campaign_rows, "created")
    mailboxes = _fitting_orders(survey.mailbox_rows, "created_at")
    fitting = [reading for reading in campaigns if reading in mailboxes]
    how = f"{len(survey.campaign_rows)} campaigns and {len(survey.mailbox_rows)} mailboxes are in this order"
    if not fitting:
        return unseen("the lists match no value of the knob, or have different orders")
    if len(fitting) == len(_ORDERS):
        return unseen("too few rows to decide")
    return among(fitting, how)


_ORDERS: Final = ("oldest", "newest", "last_activity")


def _fitting_orders(items: Sequence[Row], created: str) -> list[str]:
    times = list(_values(items, (created,)))
    ages = [age(item.get("last_activity")) for item in items]
    fits = {"oldest": times == sorted(times), "newest": times == sorted(times, reverse=True), "last_activity": _rising(ages)}
    return [reading for reading in _ORDERS if fits[reading]]


def _rising(ages: Sequence[float | None]) -> bool:
    known = [age for age in ages if age is not None]
    return len(known) == len(ages) and known == sorted(known)


def age(words: object) -> float | None:
    """Return the minimum age in seconds for a relative text such as `5 minutes ago`; `None` if it is not understood."""
    if not isinstance(words, str):
        return None
    match = _AGO.fullmatch(words.strip())
    if match:
        return _UNITS[match[2].lower()] * (int(match[1]) if match[1].isdigit() else 1)
    return {"just now": 0.0, "never": math.inf}.get(words.strip().lower())
