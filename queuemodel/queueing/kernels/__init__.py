"""Inner loops, extension modules in Cython."""
