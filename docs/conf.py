"""What Sphinx makes the documentation with: ``make docs``."""

from __future__ import annotations

import html
import os
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from django_setnx_lock.core.errors import DOCS

# autodoc imports the modules that it documents, and those need Django's settings.
sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

project = "django-setnx-lock"
author = "The developers of django-setnx-lock"
project_copyright = f"2026, {author}"
version = release = version_of("django-setnx-lock")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
]
# The copy button leaves out prompts and the output of commands.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
# A build must not fail because another site is down, so no inventory is fetched.
intersphinx_mapping: dict[str, tuple[str, None]] = {}
exclude_patterns = ["_build"]

# The pages of settings and checks begin at the third level, so that their entries look like others.
suppress_warnings = ["myst.header"]
myst_enable_extensions = ["colon_fence"]
# Headings get the anchors that GitHub gives them, so that links work in both places.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
default_role = "code"

html_theme = "furo"
html_title = f"{project} {version}"
html_baseurl = DOCS
html_static_path: list[str] = []


# What users make themselves; the rest of the classes they are given.
MADE_BY_USERS = {
    "Inspector",
    "KeyTemplate",
    "LockCollector",
    "LockMetrics",
    "LockOptions",
    "LockTester",
    "MultiLock",
    "PlainLock",
    "RWLock",
    "Redlock",
}


def leave_out(app: Sphinx, kind: str, name: str, member: Any, skip: bool, options: Any) -> Any:
    """Show how to make what users make, and no other constructor."""
    is_made = getattr(member, "__qualname__", "").partition(".")[0] in MADE_BY_USERS
    is_left_out = name == "__new__" or (name == "__init__" and not is_made)
    return True if is_left_out else None


def leave_to_class(
    app: Sphinx, kind: str, name: str, member: Any, options: Any, lines: list[str]
) -> None:
    """Have the text of a class say what its parameters are."""
    if name.endswith(".__init__"):
        lines.clear()


def put_drawings_in(app: Sphinx, doctree: nodes.document) -> None:
    """Put each SVG into the page itself, where it has the colours of the theme, light or dark."""
    for image in list(doctree.findall(nodes.image)):
        name, path = app.env.relfn2path(image["uri"])
        if name.endswith(".svg"):
            app.env.note_dependency(name)
            label = f'<svg role="img" aria-label="{html.escape(image["alt"])}"'
            drawing = Path(path).read_text().replace("<svg", label, 1)
            image.replace_self(nodes.raw("", drawing, format="html"))


def let_everybody_in(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Mend what Sphinx and the theme leave out for keyboards and for readers of the screen.

    The keyboard scrolls a block of code, the captions of the contents have a level, and the empty
    corner of a table is no heading.
    """
    for part in ("body", "furo_navigation_tree"):
        text = context.get(part) or ""
        text = text.replace('<th class="head"><p></p></th>', '<td class="head"></td>')
        text = text.replace('role="heading">', 'role="heading" aria-level="2">')
        context[part] = text.replace("<pre>", '<pre tabindex="0">')


def setup(app: Sphinx) -> None:
    """Have Sphinx call these."""
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", leave_to_class)
    # Before Sphinx collects the images that it copies.
    app.connect("doctree-read", put_drawings_in, priority=400)
    # After the theme, which makes the contents beside the page.
    app.connect("html-page-context", let_everybody_in, priority=900)
