"""How the loops of this folder are compiled."""

from __future__ import annotations

from ...compiled import compiled

#: Nothing here creates arrays, so nothing needs counted references, whose upkeep would double the time.
fast = compiled(error_model="numpy", _nrt=False)
