"""Every example of the documentation, the README and docstrings runs and prints what it says; so does figures' code."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

import queuemodel

ROOT = Path(__file__).parent.parent.parent


def script(name):
    """A script of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "scripts" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


run_examples = script("run_examples")


@pytest.mark.parametrize("path", run_examples.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_page_examples_print_their_output(path):
    failures = run_examples.run_page(path).failures
    assert not failures, "\n".join([*failures, "python docs/scripts/run_examples.py --write?"])


@pytest.mark.parametrize(("text", "problem"), [
    ("1 + 1\n3", "expected\n3\ngot\n2"), ("1.02 * 1.0\n1.0", "got\n1.02"), ("undefined", "NameError"),
    ("1.30  # simulated\n1.20", "got\n1.3"), ("print('7%')  # simulated\n4%", "got\n7%"), ("1 + 1", "got\n2"),
    ("$ queuemodel predict nowhere.json", "cannot be read"), ("$ queuemodel profile --no-such-option", "such-op"),
])  # fmt: skip
def test_a_wrong_example_is_noticed(tmp_path, text, problem):
    path = tmp_path / "page.md"
    path.write_text(f"```console\n{text}\n```\n" if text.startswith("$") else f"```python\n>>> {text}\n```\n")
    (failure,) = run_examples.run_page(path).failures
    assert problem in failure


def test_example_output_is_written(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("```python\n>>> print('1.22 steps/s, 6%')  # simulated\n1.20 steps/s, 4%\n```\n")
    page = run_examples.run_page(path)
    assert (page.failures, page.text) == ([], path.read_text())
    path.write_text("Text.\n\n```python\n>>> x = 2\n>>> for n in range(x):\n...     print(n)\n```\n")
    page = run_examples.run_page(path)
    assert (page.examples, page.text) == (2, path.read_text().replace("print(n)\n", "print(n)\n0\n1\n"))


MODULES = sorted(module.name for module in pkgutil.walk_packages(queuemodel.__path__, "queuemodel."))
#: What needs a framework, or starts the command line.
LEFT_OUT = ("queuemodel.adapters.tensorflow", "queuemodel.__main__")


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(LEFT_OUT)])
def test_docstring_examples_pass(name):
    public = {public: getattr(queuemodel, public) for public in queuemodel.__all__}
    assert doctest.testmod(importlib.import_module(name), extraglobs=public).failed == 0


GALLERY = (ROOT / "docs" / "gallery.md").read_text()


@pytest.fixture(scope="module")
def figures():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "scripts"))
        module = script("figures")
        patch.setattr(module, "compare", partial(module.compare, steps=60, seeds=2, learning_rates=[0.1]))  # sooner
        yield module
    plt.close("all")


@pytest.mark.slow
def test_figures_stand_beside_their_code(figures):
    caption = r"!\[[^\]]+\]\(images/([\w-]+)\.png\)\n\n```\{literalinclude\} (\S+)\n.*?:pyobject: (\w+)"
    assert {name: (file, code) for name, file, code in re.findall(caption, GALLERY, re.S)} == {
        name: ("scripts/figures.py", draw.__name__) for name, draw in figures.FIGURES.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", re.findall(r"\(images/([\w-]+)\.png\)", GALLERY))
def test_figure_code_draws_the_figure(figures, name):
    ax = figures.FIGURES[name]()
    assert all([ax.get_xlabel(), ax.get_ylabel(), ax.has_data()])
    plt.close(ax.figure)
