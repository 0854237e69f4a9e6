"""How the loops of this folder are compiled: into one piece, without a way in from Python but for a few."""

from __future__ import annotations

from ...base.compiled import compiled

#: Nothing here creates arrays, so nothing needs counted references, whose upkeep would double the time; so would calls
#: that hand over a whole state, which is hundreds of numbers.
ONE_PIECE = {"error_model": "numpy", "_nrt": False, "forceinline": True}
#: For what Python calls, from threads too; and for all others: taking a state apart is half of the time to compile.
entry = compiled(**ONE_PIECE, nogil=True)
fast = compiled(**ONE_PIECE, no_cpython_wrapper=True, no_cfunc_wrapper=True)
