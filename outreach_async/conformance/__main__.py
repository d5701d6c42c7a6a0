"""`python -m outreach_async.conformance`: the conformance suite with pytest's options, or what to install for it."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Run the suite.

    Args:
        arguments: Options of pytest and of the suite.

    Returns:
        pytest's exit code; 2 without pytest.
    """
    try:
        import pytest
    except ModuleNotFoundError:
        sys.stderr.write("outreach_async.conformance is a suite for pytest: pip install 'pytest>=8'\n")
        return 2
    # pytest would rewrite the assertions of a plugin's package; this one has none, and is imported already.
    quiet = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
    return int(pytest.main([*quiet, "--pyargs", "outreach_async.conformance", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
