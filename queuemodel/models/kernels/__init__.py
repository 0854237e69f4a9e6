"""Loops over what goes event by event, for many draws at once, in Cython."""
