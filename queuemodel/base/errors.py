"""The package's exceptions and warnings; every message is one line: where, what was expected, got, and what to do."""


class QueueModelError(Exception):
    """Anything that this package refuses to do."""


class ModelError(QueueModelError, ValueError):
    """A network or a question that makes no sense (negative times, population 0, ...)."""


class DataError(QueueModelError, ValueError):
    """A file or a value measured elsewhere that cannot be used: malformed, truncated, absurd."""


class FitError(QueueModelError):
    """The data do not allow the requested fit."""


class ProfilingError(QueueModelError, RuntimeError):
    """A live profiling run that could not be started or ended early."""


class MissingDependencyError(QueueModelError, ImportError):
    """An optional dependency is absent; the message names the extra that installs it."""


class QueueModelWarning(UserWarning):
    """Anything worth knowing about a returned answer."""
