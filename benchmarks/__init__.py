"""What the library costs beside its peers. One command: `python -m benchmarks [--quick] [--only GROUP]`.

The library is the one that is installed: a wheel, or the source tree if editable.
"""

import sys
from pathlib import Path

# `-m` puts the source tree first on the path. The benchmarks are found in it, the library only if it is not installed elsewhere.
sys.path.sort(key=str(Path(__file__).resolve().parent.parent).__eq__)
