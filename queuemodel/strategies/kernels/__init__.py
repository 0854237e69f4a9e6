"""Compiled loops of schemes whose messages depend on how the network keeps up; imported inside functions only."""
