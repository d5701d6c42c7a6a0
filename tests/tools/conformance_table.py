"""Calibrate fakes with different behaviours over a real port, and print which knobs are measured correctly.

Run: python -m tools.conformance_table (takes about two minutes)

Prints one line for each value of each knob, with the result for that knob. Then prints one line for each preset and each row of
the pairwise cover, with the knobs that were measured wrongly. Exits with 1 if any knob was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import anyio
from support.calibration import MANY, find_misses, indistinguishable_values, service, single_readings, world, writer
from support.fake_transports import over_a_socket

from outreach_async.conformance._calibration import measure_service
from outreach_async.conformance._target import KnobFinding, Patience
from outreach_async.fake import Behaviour
from outreach_async.testing._marker import pairwise


async def found(behaviour: Behaviour) -> Mapping[str, KnobFinding]:
    """Measure a fake with the given behaviour over a real port."""
    async with over_a_socket(service(behaviour, world(MANY, MANY))) as transport:
        return (await measure_service(transport, writer(behaviour), Patience())).findings


def others() -> Iterator[tuple[str, Behaviour]]:
    """Yield behaviours that differ from the documented one in several knobs, with their names."""
    yield from (("strict", Behaviour.strict()), ("lenient", Behaviour.lenient()))
    yield from ((f"row {number}", row) for number, row in enumerate(pairwise()))


async def main() -> int:
    """Print the table; return 1 if any knob was measured wrongly."""
    wrong = 0
    for knob, behaviour in single_readings():
        findings = await found(behaviour)
        missed = find_misses(behaviour, findings, MANY, MANY)
        wrong += bool(missed)
        own, finding = getattr(behaviour, knob), findings[knob]
        verdict = ("not seen", "recovered")[len(finding.possible)] if len(finding.possible) < 2 else "narrowed"
        sys.stdout.write(f"{knob:21} {own!s:40.40} {verdict:10} {finding.explanation}{f'  MISSED {missed}' if missed else ''}\n")
    for name, behaviour in others():
        findings = await found(behaviour)
        missed = find_misses(behaviour, findings, MANY, MANY)
        wrong += bool(missed)
        exact = sum(len(indistinguishable_values(behaviour, knob, MANY, MANY)) == 1 for knob in findings)
        sys.stdout.write(f"{name:21} {exact} of {len(findings)} knobs are distinguishable, {len(missed)} missed {missed or ''}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
