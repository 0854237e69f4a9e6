"""What every folder stands on: errors, checks, files, results, figures, parallel tasks, compiled loops."""

__version__ = "0.1.0"
