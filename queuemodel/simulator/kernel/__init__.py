"""The simulator's inner loop, compiled while the package is installed (`traces.ahead`) or when it is first needed.

Workers, servers, recorded steps and their operations are numbered. A *flow* is one connection in one direction: flow
``[0, w, k]`` carries server ``k``'s parameters to worker ``w``, flow ``[1, w, k]`` the worker's gradients back.
Everything that changes lives in the arrays of one `State` (state.py), which all functions share. `loop` takes the
earliest event, a timer or a chunk that has been carried (queues.py), and hands it to the worker's step (steps.py); at
its end rounds.py decides who goes on. Then the links' capacity is shared anew (sharing.py), by TCP's windows
(windows.py) or what BBR remembers (memory.py) where that is asked for. Constants stand beside the loops, because a
change in this folder, and only here, outdates what numba has cached of them.
"""
