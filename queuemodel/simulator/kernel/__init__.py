"""The simulator's inner loop, one extension module in Cython.

Workers, servers, recorded steps and operations are numbered. A *flow* is a connection in one direction: ``[0, w, k]``
carries server ``k``'s parameters to worker ``w``, ``[1, w, k]`` the worker's gradients back. `loop` takes the earliest
event, a timer or the end of a chunk (queues), and passes it to the worker's step (steps), at whose end `rounds` starts
next steps. Then the links' rates are set anew (sharing), by TCP's windows or BBR's estimates (windows).
"""
