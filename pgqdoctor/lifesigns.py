"""Names of columns by which a worker shows that it is alive."""

from __future__ import annotations

import re
from typing import Final

HEARTBEAT: Final = re.compile(r"(heart_?beat|last_?seen|last_?alive|pinged|touched|keep_?alive)")
