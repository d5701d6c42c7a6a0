"""Benchmarks of the library beside its peers: `python -m benchmarks [--quick] [--only GROUP]`.

They measure the installed library: a wheel, or the source tree if it is installed in editable mode.
"""

import sys
from pathlib import Path

# `-m` puts the source tree first on the path. Move it to the end, so that an installed wheel of the library takes precedence.
sys.path.sort(key=str(Path(__file__).resolve().parent.parent).__eq__)
