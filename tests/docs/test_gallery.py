"""The gallery shows every figure with the code that draws it, and that code runs."""

import importlib.util
import re
from functools import partial
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent.parent / "docs"
GALLERY = (DOCS / "gallery.md").read_text()


@pytest.fixture(scope="module")
def figures():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "scripts"))
        spec = importlib.util.spec_from_file_location("docs_figures", DOCS / "scripts" / "figures.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        patch.setattr(module, "compare", partial(module.compare, steps=60, seeds=2, learning_rates=[0.1]))  # sooner
        yield module
    plt.close("all")


def test_figures_stand_beside_their_code(figures):
    shown = re.findall(
        r"!\[[^\]]+\]\(images/([\w-]+)\.png\)\n\n```\{literalinclude\} (\S+)\n.*?:pyobject: (\w+)", GALLERY, re.S
    )
    assert {name: (file, code) for name, file, code in shown} == {
        name: ("scripts/figures.py", draw.__name__) for name, draw in figures.FIGURES.items()
    }


@pytest.mark.parametrize("name", re.findall(r"\(images/([\w-]+)\.png\)", GALLERY))
def test_figure_code_draws_the_figure(figures, name):
    ax = figures.FIGURES[name]()
    assert all([ax.get_xlabel(), ax.get_ylabel(), ax.has_data()])
    plt.close(ax.figure)
