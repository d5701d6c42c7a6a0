"""What test suites need beside the fake: virtual time, and every reading of what the interface leaves unsaid.

    async def works() -> None: ...  # an hour of waiting takes milliseconds
    time = VirtualTime()
    fake = FakeService(clock=time)
    anyio.run(works, backend="trio", backend_options=time.options("trio"))

    for behaviour in pairwise(): ...  # about thirty values; any two readings of two knobs meet in one of them

With pytest, the fixtures and the marker of `outreach_async.pytest_plugin` do this for you. Nothing here needs pytest.
"""

from outreach_async.testing.pairwise import differing, pairwise
from outreach_async.testing.virtual_time import VirtualTime, VirtualTimeLoop

__all__ = ["VirtualTime", "VirtualTimeLoop", "differing", "pairwise"]
