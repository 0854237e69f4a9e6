"""Compiled loops of what goes event by event, for many draws at once; imported inside functions only."""
