"""What the package, its metadata and the README point to is there."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_setnx_lock

DOCS = "https://django-setnx-lock.readthedocs.io/en/stable/"
PACKAGE = Path(django_setnx_lock.__file__).parent
ROOT = PACKAGE.parent
PAGES = {page.stem: page for page in sorted(ROOT.joinpath("docs").glob("*.md"))}
# What is read in the repository; at the links of the pages Sphinx looks, too.
IN_THE_REPOSITORY = [
    *("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    "example_project/README.md",
    *(f"docs/{page}.md" for page in PAGES),
]
FILES = {str(file.relative_to(ROOT)): file.read_text() for file in sorted(PACKAGE.rglob("*.py"))}


def anchors(page: Path) -> set[str]:
    """Return the ids that Sphinx gives the headings of ``page``."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") for heading in headings}


@functools.cache
def nodes_of(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def linked() -> Iterator[tuple[str, str]]:
    """Give the page and the anchor of each call of docs_url() that names them in place."""
    for source in FILES.values():
        for node in nodes_of(source):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "docs_url":
                given = [str(one.value) for one in node.args if isinstance(one, ast.Constant)]
                # The others name the number of a check or a finding; these have tests of their own.
                if len(given) == len(node.args):
                    yield given[0], "".join(given[1:])


def messages(source: str) -> Iterator[str]:
    """Give the texts in ``source`` but for the docstrings."""
    nodes = nodes_of(source)
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            yield str(node.value)


def test_what_the_package_links_to_is_in_the_docs() -> None:
    links = set(linked())

    assert links
    assert {page for page, _ in links} <= set(PAGES)
    leading = {link for link in links if not link[1] or link[1].lower() in anchors(PAGES[link[0]])}
    assert leading == links


def test_no_message_names_a_file_that_the_wheel_does_not_hold() -> None:
    found = {name: re.findall(r"[\w-]+\.md\b", " ".join(messages(FILES[name]))) for name in FILES}

    assert {name: named for name, named in found.items() if named} == {}


def test_every_page_that_a_docstring_names_exists() -> None:
    named = {page for source in FILES.values() for page in re.findall(r":doc:`([^`]+)`", source)}

    assert named
    assert named <= set(PAGES)


def project_urls() -> dict[str, str]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["metadata"]["project_urls"].strip().splitlines()
    return dict(line.split(" = ") for line in lines)


def slugs(file: Path) -> set[str]:
    """Return the ids that GitHub gives the headings of ``file``."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(link: str, page: Path) -> bool:
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    return target.is_file() and (not anchor or anchor in slugs(target))


@pytest.mark.parametrize("name", IN_THE_REPOSITORY)
def test_every_link_of_a_file_of_the_repository_leads_to_another(name: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", ROOT.joinpath(name).read_text())
    own = [link for link in links if "://" not in link]
    if not (ROOT / "bench").is_dir():  # as in a source distribution
        own = [link for link in own if not link.startswith("bench/")]

    assert [link for link in own if not leads_somewhere(link, ROOT / name)] == []
    assert [link for link in links if link.startswith(DOCS)] == []


def test_the_drawing_of_the_architecture_names_what_there_is() -> None:
    text = ROOT.joinpath("ARCHITECTURE.md").read_text().split("```")[1]
    drawing = re.sub(r"#.*|^\w+", "", text, flags=re.MULTILINE)
    named = re.findall(r"\w+/?", drawing.replace("core/", ""))
    there = {path.stem for path in PACKAGE.rglob("*.py")}
    there |= {f"{path.name}/" for path in PACKAGE.rglob("*") if path.is_dir()}

    assert len(named) > 35
    assert set(named) - there == set()


def test_the_metadata_link_to_the_documentation_and_the_changes() -> None:
    urls = project_urls()

    assert urls["Documentation"] == DOCS
    assert urls["Changelog"] == f"{urls['Source']}/blob/main/CHANGELOG.md"
    assert set(urls) == {"Documentation", "Changelog", "Source", "Issues"}


def test_there_is_one_version_throughout() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    version = setup["metadata"]["version"]
    changes = ROOT.joinpath("CHANGELOG.md").read_text()

    assert re.findall(r"^## (.+)$", changes, re.MULTILINE)[:2] == ["Unreleased", version]
