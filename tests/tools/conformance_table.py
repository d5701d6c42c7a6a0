"""The table of what calibrating finds, over a real port: `python -m tools.conformance_table`, some two minutes.

A line a reading: whether it was recovered; then the presets and every row of the pairwise cover, each compared knob by knob.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import anyio
from support.calibration import MANY, find_misses, indistinguishable_values, service, single_readings, world, writer
from support.fake_transports import over_a_socket

from outreach_async.conformance.calibration import measure_service
from outreach_async.conformance.target import KnobFinding, Patience
from outreach_async.fake import Behaviour
from outreach_async.testing.orders import pairwise


async def found(behaviour: Behaviour) -> Mapping[str, KnobFinding]:
    """Measure a fake that behaves in a way, on a real port."""
    async with over_a_socket(service(behaviour, world(MANY, MANY))) as transport:
        return (await measure_service(transport, writer(behaviour), Patience())).findings


def others() -> Iterator[tuple[str, Behaviour]]:
    """Yield whole behaviours by name."""
    yield from (("strict", Behaviour.strict()), ("lenient", Behaviour.lenient()))
    yield from ((f"row {number}", row) for number, row in enumerate(pairwise()))


async def main() -> int:
    """Print the table; 1 if anything was not found as it should be."""
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
        sys.stdout.write(f"{name:21} {exact} of {len(findings)} knobs can be seen, {len(missed)} missed {missed or ''}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
