"""From other tools' recordings to a `Profile`; each tool in a subpackage of its own, imported only when used."""
