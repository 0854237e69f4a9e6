"""What the extension modules were built from."""

cdef extern from *:
    const char* SOURCES  # defined by setup.py

sources = SOURCES.decode()
