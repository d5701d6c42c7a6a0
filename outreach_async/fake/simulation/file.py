"""The simulation's state in a world file: the member `simulation`, present only if something has happened.

{"wake": 1767312000000000,                                 when to serve the queues again, Unix microseconds, or null
 "campaigns": {"camp_1": {"since": …, "begun": true,       differences from the seeded campaign
                          "counts": [[[sent, opened, clicked, replied, unsubscribed], …], …],
                          "left": […], "bounces": 0, "interested": 0, "last": null, "joined": […], "queue": […],
                          "progress": {"contact_1": 2, "contact_2": null}, "rounds": {}}},
 "mailboxes": {"mailbox_1": {"day": 20454, "sent": [[20454, 3]], "opened": […], "bounced": […],
                             "life": 3, "opens": 1, "clicks": 0, "last": 1767225600.0}},
 "events": [[at, kind, campaign, contact, step, token, stop, mailbox, template, day], …],
 "scripts": [[token, campaign, step, [[kind, microseconds], …]], …]}
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from outreach_async.fake.given import whole
from outreach_async.fake.records import Campaign, Mailbox
from outreach_async.fake.simulation.chance import Plan
from outreach_async.fake.simulation.events import DUE, NAMES, Event
from outreach_async.fake.simulation.flows import COUNTS, ENDED, Flow, Joined
from outreach_async.fake.simulation.ledgers import FORTNIGHT, MONTH, QUARTER, Ledger
from outreach_async.fake.simulation.state import Simulation

_EVENT: Final = (int, int, str, str, int, str, int, str, int, int)

# Dumping.


def simulation_document(state: Simulation, day: int) -> dict[str, Any]:
    """Return the simulation's state, equal for equal states; empty if nothing has happened yet.

    Args:
        state: The state.
        day: Today, in days since 1970.
    """
    flows = {id_: _flow_document(flow) for id_, flow in sorted(state.flows.items()) if flow.begun or flow.rounds}
    ledgers = {id_: _ledger_document(ledger, day) for id_, ledger in sorted(state.ledgers.items()) if ledger.life}
    scripts = [[*key, plan] for key, plan in sorted(state.scripts.items())]
    if not (flows or scripts):
        return {}
    return {"wake": state.wake, "campaigns": flows, "mailboxes": ledgers, "events": sorted(state.heap), "scripts": scripts}


def _flow_document(flow: Flow) -> dict[str, Any]:
    return {
        "since": flow.since,
        "begun": flow.begun,
        "counts": flow.counts,
        "left": flow.lefts,
        "bounces": flow.bounces,
        "interested": flow.interested,
        "last": flow.last,
        "joined": flow.joined,
        "queue": list(flow.queue),
        "progress": {who: None if step == ENDED else step for who, step in sorted(flow.progress.items())},
        "rounds": dict(sorted(flow.rounds.items())),
    }


def _ledger_document(ledger: Ledger, day: int) -> dict[str, Any]:
    # A ledger's day depends on when it was last read. Roll a copy to today, so that equal states give equal documents.
    ledger = ledger.copy()
    ledger.roll(day)
    return {
        "day": ledger.day,
        "sent": _days(ledger.sent, ledger.day),
        "opened": _days(ledger.opened, ledger.day),
        "bounced": _days(ledger.bounced, ledger.day),
        "life": ledger.life,
        "opens": ledger.opens,
        "clicks": ledger.clicks,
        "last": ledger.last,
    }


def _days(ring: Sequence[int], latest: int) -> list[tuple[int, int]]:
    days = range(latest - len(ring) + 1, latest + 1)
    return [(day, ring[day % len(ring)]) for day in days if ring[day % len(ring)]]


# Loading.


def load_simulation(
    document: Any, state: Simulation, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]
) -> None:
    """Load the state of a simulation from a world file.

    Raises:
        KeyError: A member is missing.
        TypeError: A value has the wrong type.
        ValueError: A value refers to something that is not in the world, or does not fit it.
    """
    for id_, item in _typed(document["campaigns"], dict).items():
        state.flows[id_] = _flow(item, _known(id_, campaigns), campaigns, mailboxes)
    for id_, item in _typed(document["mailboxes"], dict).items():
        state.ledgers[id_] = _ledger(item, _known(id_, mailboxes))
    state.heap = sorted(_event(item, campaigns, mailboxes) for item in _typed(document["events"], list))
    for token, campaign, step, plan in _typed(document["scripts"], list):
        state.scripts[_typed(token, str), _typed(campaign, str), whole("step", step)] = _plan(plan)
    state.wake = None if document["wake"] is None else whole("wake", document["wake"])


def _flow(item: Any, campaign: Campaign, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]) -> Flow:
    counts = [[[whole("counts", n) for n in part] for part in step] for step in item["counts"]]
    lefts = [whole("left", left) for left in item["left"]]
    shape = [[len(COUNTS)] * len(step.templates) for step in campaign.steps]
    if [[len(part) for part in step] for step in counts] != shape or len(lefts) != len(shape):
        raise ValueError(f"{campaign.id}: counts and left do not match its steps and templates")
    return Flow(
        whole("since", item["since"]),
        counts,
        lefts,
        whole("bounces", item["bounces"]),
        whole("interested", item["interested"]),
        _moment(item["last"]),
        _typed(item["begun"], bool),
        [_joined(joined) for joined in item["joined"]],
        deque(_event(event, campaigns, mailboxes) for event in item["queue"]),
        {who: ENDED if step is None else whole("progress", step) for who, step in _typed(item["progress"], dict).items()},
        {who: whole("rounds", number) for who, number in _typed(item["rounds"], dict).items()},
    )


def _joined(item: Any) -> Joined:
    who, token, at = item
    return _typed(who, str), _typed(token, str), whole("joined", at)


def _ledger(item: Any, mailbox: Mailbox) -> Ledger:
    ledger = Ledger.of(mailbox)
    day = whole("day", item["day"])
    ledger.roll(day)
    ledger.sent, ledger.opened, ledger.bounced = (
        _ring(item[name], length, day) for name, length in (("sent", QUARTER), ("opened", FORTNIGHT), ("bounced", MONTH))
    )
    ledger.quarter, ledger.opened_sum, ledger.bounced_sum = sum(ledger.sent), sum(ledger.opened), sum(ledger.bounced)
    ledger.fortnight, ledger.month = (
        sum(ledger.sent[(day - back) % QUARTER] for back in range(length)) for length in (FORTNIGHT, MONTH)
    )
    ledger.life, ledger.opens, ledger.clicks = (whole(name, item[name]) for name in ("life", "opens", "clicks"))
    ledger.last = _moment(item["last"])
    return ledger


def _ring(days: Iterable[Any], length: int, latest: int) -> list[int]:
    ring = [0] * length
    for day, count in days:
        if not latest - length < whole("day", day) <= latest:
            raise ValueError(f"day {day}: expected one of the {length} days up to {latest}")
        ring[day % length] = whole("count", count)
    return ring


def _event(item: Any, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]) -> Event:
    if len(item) != len(_EVENT):
        raise ValueError(f"expected an event of {len(_EVENT)} parts, got {len(item)}")
    event = Event(*(_typed(part, kind) for part, kind in zip(item, _EVENT, strict=True)))
    steps = _known(event.campaign, campaigns).steps
    mailbox = mailboxes.get(event.mailbox)
    fits = 0 <= event.kind < len(NAMES) and 0 <= event.step < event.stop <= len(steps)
    if not fits or not 0 <= event.template < len(steps[event.step].templates):
        raise ValueError(f"{event}: the campaign has no such step or template")
    if mailbox is None and (event.mailbox or event.kind != DUE):
        raise ValueError(f"{event}: there is no such mailbox")
    return event


def _plan(item: Any) -> Plan:
    plan = tuple((whole("kind", kind), whole("microseconds", delay)) for kind, delay in item)
    for kind, _ in plan:
        if not DUE < kind < len(NAMES):
            raise ValueError(f"kind {kind}: expected a kind from {DUE + 1} to {len(NAMES) - 1}")
    return plan


def _known(id_: str, table: Mapping[str, Any]) -> Any:
    if id_ not in table:
        raise ValueError(f"there is no {id_!r} in this world")
    return table[id_]


def _moment(value: Any) -> float | None:
    return None if value is None else float(value)


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected the type {kind.__name__}, got {type(value).__name__}")
    return value
