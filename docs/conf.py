"""The documentation's settings: ``make docs``."""

import shutil
from pathlib import Path

import queuemodel

# Pages of names that are gone would be warned about.
shutil.rmtree(Path(__file__).parent / "reference" / "generated", ignore_errors=True)

project = "queuemodel"
author = "The queuemodel developers"
copyright = "2026, the queuemodel developers"
release = version = queuemodel.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "**/generated/.*"]
templates_path = ["_templates"]
myst_enable_extensions = ["deflist", "dollarmath", "colon_fence"]
myst_heading_anchors = 3
suppress_warnings: list[str] = []

default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "furo"
html_title = "queuemodel"
