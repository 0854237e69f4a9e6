"""Inner loops compiled by numba, which takes half a second to load: imported only inside functions."""
