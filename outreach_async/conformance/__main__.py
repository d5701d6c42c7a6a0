"""`python -m outreach_async.conformance`: run the conformance suite with pytest's options."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Run the suite."""
    try:
        import pytest
    except ModuleNotFoundError:
        sys.stderr.write("outreach_async.conformance needs pytest; run: pip install 'pytest>=8'\n")
        return 2
    # pytest warns that it cannot rewrite the assertions of an imported plugin. This package contains no assertions.
    quiet = "-Wignore::pytest.PytestAssertRewriteWarning"
    return int(pytest.main([quiet, "--pyargs", "outreach_async.conformance", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
