"""The `outreach-async` command, also available as `python -m outreach_async`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

_REQUIRED_MODULES: Final = frozenset({"click", "rich"})
_EXIT_USAGE: Final = 2
_EXIT_INTERRUPTED: Final = 130


def main() -> int:
    """Run the command with the arguments of this process and return the exit code."""
    if sys.argv[1:] == ["--version"]:  # so that it is as fast as it can be
        import outreach_async

        with suppress(AttributeError, OSError):  # a closed or full stdout, which `run` reports
            sys.stdout.write(f"outreach_async {outreach_async.__version__}\n")
            sys.stdout.flush()
            return 0
    try:
        from outreach_async._cli.app import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # Ctrl-C during the imports; afterwards, the command itself handles Ctrl-C
        return _EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name not in _REQUIRED_MODULES:
            raise
        sys.stderr.write(
            f"outreach-async: {error.name} is missing; install the command with: pip install 'outreach_async[cli]'\n"
        )
        return _EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
