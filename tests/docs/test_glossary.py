"""What users read has the field's words: help, errors, fits, figures and names; legends have the glossary's."""

import ast
import contextlib
import importlib
import inspect
import pkgutil
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest
from matplotlib import pyplot as plt

import queuemodel as qm
from queuemodel import cli, curves

ROOT = Path(__file__).parent.parent.parent
BANNED = re.compile(
    r"(?i)\b((un)?told|tell(s|ing)?|ask(s|ed|ing)?|taught|teach(es)?|say|says|said|knows|knee|whoever|few flows"
    r"|was thought|(no|some|every)body|taken (to|for))\b"
)
#: Participles, prepositions and persons as parts of names; clauses for terms in first lines of docstrings.
BANNED_NAMES = {
    "again", "alone", "among", "asked", "beside", "besides", "beyond", "carried", "found", "nobody", "pace", "paces",
    "said", "seldom", "shown", "suffered", "sure", "taught", "thought", "told", "unlike", "unseen",
    "untold", "whose",
}  # fmt: skip
BANNED_CLAUSES = re.compile(
    r"(?i)\b(what(?!-| to\b)|(as|so) many|as much|(un)?told|tells?|taught|asks?|asked|says?|said|carried|paces|whoever"
    r"|(no|some|every)body)\b"
)
PLAIN = {"waiting", "n*", "time", "of", "one", "since", "it", "began", "s", "/s"}  # beside the glossary's terms


def legends(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()] if ax.get_legend() else []


@pytest.fixture(scope="module")
def figures():
    solved = [qm.fit(qm.example_profile(name)).throughput(range(1, 13)) for name in ("alexnet-60", "ddp-alexnet-40")]
    draws = (qm.ThroughputCurve.plot, curves.plot_step_time, curves.plot_efficiency)
    yield [*(draw(one) for one in solved for draw in draws), curves.plot_comparison({"2 servers": solved[0]})]
    plt.close("all")


def user_texts(figures):
    """Texts of help, fits and figures."""
    yield from (field.metadata["help"] for field in fields(qm.Scenario))
    for name, (module, short) in cli.COMMANDS.items():
        command = getattr(importlib.import_module(f"queuemodel.cli.{module}"), name.replace("-", "_") + "_command")
        yield from (short, command.help, *(getattr(one, "help", None) or "" for one in command.params))
    for model in (qm.fit(qm.example_profile(name)) for name in ("alexnet-60", "ddp-alexnet-40")):
        yield from (model.caption(), model.throughput([4]).caption())
        yield from (word for one in model.parameters for word in (one.name, one.unit, one.origin, one.note))
    for ax in figures:
        yield from (ax.get_xlabel(), ax.get_ylabel(), *(text.get_text() for text in ax.texts), *legends(ax))


def errors(_):
    """Strings of every ``raise``, without code in backquotes."""
    for path in (ROOT / "queuemodel").rglob("*.py"):
        for found in (one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Raise)):
            strings = [one.value for one in ast.walk(found) if isinstance(one, ast.Constant) and str(one.value)]
            yield re.sub("`.*?`", "", " ".join(map(str, strings)))


def glossary():
    """Its terms and names in code, the longest first."""
    text = (ROOT / "docs" / "glossary.md").read_text().lower()
    terms = [term for line in re.findall(r"^(.+)\n: ", text, re.MULTILINE) for term in line.split(", ")]
    rows = "".join(re.findall(r"^\| \$.+", text, re.MULTILINE))
    return sorted({*terms, *(name.replace("_", " ") for name in re.findall("`(.+?)`", rows))}, key=len, reverse=True)


def unknown(label):
    """Words of a label that are neither numbers nor the glossary's."""
    rest = re.sub(r"[\d.]+( ?%)?", " ", label.lower())
    for term in glossary():
        rest = re.sub(rf"(?<!\w){re.escape(term)}s?(?!\w)", " ", rest)
    return {*re.findall(r"[^\s,:()]+", rest)} - PLAIN


@pytest.mark.parametrize("texts", [user_texts, errors])
def test_user_texts_have_no_banned_word(figures, texts):
    found = list(texts(figures))
    assert len(found) > 200
    assert [text for text in found if BANNED.search(text)] == []


def test_legends_have_the_glossarys_words(figures):
    page = re.findall(r'label: ["`](.*?)["`]', (ROOT / "queuemodel/report/figures.js").read_text())
    assert len(page) > 4
    labels = [*page, *(label for ax in figures for label in legends(ax))]
    assert {label: words for label in labels if (words := unknown(re.sub(r"\$\{.*?\}", "90 %", label)))} == {}


def test_other_words_are_noticed():
    assert all(BANNED.search(text) for text in ("Tell it.", "nobody thinks", "asked for", "the knee", "few flows"))
    assert not BANNED.search("latency is assumed: specify it; task 3 of the basket, stellar")
    assert {"bottleneck", "saturation population", "worker", "push"} <= {*glossary()}
    assert (unknown("worker 3, waiting, 90 %"), unknown("worker, dawdling")) == (set(), {"dawdling"})


def public():
    """Names that packages export, their methods and properties, each with its object."""
    packages = [module.name for module in pkgutil.iter_modules(qm.__path__, "queuemodel.") if module.ispkg]
    for package in map(importlib.import_module, packages):
        for name, found in ((name, getattr(package, name)) for name in getattr(package, "__all__", ())):
            yield name, found
            for member, value in vars(found).items() if inspect.isclass(found) else ():
                if not member.startswith("_"):
                    yield member, getattr(value, "fget", None) or getattr(value, "func", None) or value


def names_of(name, found):
    """A public name and the parameters of its object, unless it is an enumeration."""
    with contextlib.suppress(ValueError):
        return {name, *inspect.signature(found).parameters} if callable(found) else {name}
    return {name}


def is_banned(name):
    return bool(BANNED_NAMES & {*name.lower().split("_")})


def test_public_names_and_first_lines():
    names = {one for name, found in public() for one in names_of(name, found)}
    documented = (found for _, found in public() if inspect.isroutine(found) or inspect.isclass(found))
    lines = {(inspect.getdoc(found) or "").partition("\n")[0] for found in documented}
    assert len(names) > 700
    assert len(lines) > 500
    assert {name for name in names if is_banned(name)} == set()
    assert {line for line in lines if BANNED_CLAUSES.search(line)} == set()


def repeated(texts):
    """Constants of modules that several define, those that one statement names."""
    found = Counter()
    for text in texts:
        assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign | ast.AnnAssign)]
        targets = (target for node in assigned for target in getattr(node, "targets", None) or [node.target])
        found.update({one.id for one in targets if isinstance(one, ast.Name) and one.id.isupper() and one.id[0] != "_"})
    return {name for name, count in found.items() if count > 1}


def test_capital_names_are_unique():
    assert repeated(path.read_text() for path in (ROOT / "queuemodel").rglob("*.py")) == set()


def test_bad_names_are_noticed():
    assert all(map(is_banned, ("non_told_time", "PACES", "measured_besides", "alone")))
    assert not any(map(is_banned, ("placement", "foundation", "tolda")))
    lines = ("What it lasts beyond computing.", "As many as workers.", "Rounds of so many ranks.", "Nobody waits.")
    assert all(map(BANNED_CLAUSES.search, lines))
    assert not BANNED_CLAUSES.search("Curves of what-ifs, and what to measure next, whatever the order.")
    assert repeated(["KINDS = 1", "KINDS: int = 2\nB = 1", "B = kinds = 3", "_KINDS = 4"]) == {"KINDS", "B"}
