"""Inner loops compiled by numba, imported only inside functions: numba takes half a second to load.

Compiled code is cached on disk beside the sources (or in numba's own cache folder), so each loop is compiled once.
"""
