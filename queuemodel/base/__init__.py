"""What every folder stands on: errors, checks, files, results, figures, parallel tasks."""

__version__ = "0.1.0"
