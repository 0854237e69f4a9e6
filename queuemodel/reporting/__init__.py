"""A report that one can mail: one HTML file with its data, its style and its scripts, which needs nothing else.

A result gathers what its page shows as plain values (`reporting` beside it), and `report_page` puts them into one file
with the scripts beside this module: chart.js draws and page.js has what all pages share; network.js and plan.js give
the same numbers as Python to settings.js, figures.js and curve.js; comparison.js is the page of a comparison.
"""

from .page import SUFFIXES, report_page

__all__ = ["SUFFIXES", "report_page"]
