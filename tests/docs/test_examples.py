"""Every example in the documentation, the README and the docstrings runs and prints what it says."""

import doctest
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

import pytest

import queuemodel

ROOT = Path(__file__).parent.parent.parent


def script(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


run_examples = script("run_examples")


@pytest.mark.parametrize("path", run_examples.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_page_print_what_it_says(path):
    page = run_examples.run_page(path)
    assert not page.failures, "\n".join(
        [*page.failures, "if the page is what is out of date: python docs/run_examples.py --write"]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\n>>> 1 + 1\n3\n```\n", "expected\n3\ngot\n2"),
        ("```python\n>>> 1.02 * 1.0\n1.0\n```\n", "got\n1.02"),
        ("```python\n>>> 1.30  # simulated\n1.20\n```\n", "got\n1.3"),
        ("```python\n>>> print('7%')  # simulated\n4%\n```\n", "got\n7%"),
        ("```python\n>>> undefined\n```\n", "NameError"),
        ("```python\n>>> 1 + 1\n```\n", "got\n2"),
        ("```console\n$ queuemodel predict nowhere.json\n```\n", "cannot be read"),
        ("```console\n$ queuemodel profile --no-such-option\n```\n", "no-such-option"),
    ],
)
def test_a_wrong_example_is_noticed(tmp_path, text, problem):
    path = tmp_path / "page.md"
    path.write_text(text)
    (failure,) = run_examples.run_page(path).failures
    assert problem in failure


def test_an_example_is_found_and_its_output_written_but_for_sampling_errors(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("```python\n>>> print('1.22 steps/s, 6%')  # simulated\n1.20 steps/s, 4%\n```\n")
    page = run_examples.run_page(path)
    assert not page.failures
    assert page.text == path.read_text()
    path.write_text("Text.\n\n```python\n>>> x = 2\n>>> for n in range(x):\n...     print(n)\n```\n")
    page = run_examples.run_page(path)
    assert page.examples == 2
    assert page.text == path.read_text().replace("print(n)\n", "print(n)\n0\n1\n")


@pytest.mark.parametrize(
    "name",
    sorted(
        module.name
        for module in pkgutil.walk_packages(queuemodel.__path__, "queuemodel.")
        if not module.name.endswith("__main__")
        and not module.name.startswith(("queuemodel.adapters.tensorflow", "queuemodel.adapters.pytorch.rank"))
    ),
)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    public = {public: getattr(queuemodel, public) for public in queuemodel.__all__}
    assert doctest.testmod(module, extraglobs=public).failed == 0
