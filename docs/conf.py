"""What Sphinx makes the documentation with: ``make docs``."""

from __future__ import annotations

import html
import os
import re
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
# Without a button to the source of a page, which would be outside of all landmarks.
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}
html_copy_source = False


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


def leave_out_empty_heads(app: Sphinx, doctree: nodes.document) -> None:
    """Leave out the head of a table whose columns have no titles."""
    for head in list(doctree.findall(nodes.thead)):
        if not head.astext().strip():
            head.parent.remove(head)


def make_accessible(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give captions a level, and take the role of a heading from empty cells."""
    for part in ("body", "furo_navigation_tree"):
        if part in context:
            text = context[part].replace('role="heading"', 'role="heading" aria-level="2"')
            context[part] = re.sub(
                r'<th class="head">(<p>\s*</p>)?</th>', '<td class="head"></td>', text
            )
    context["metatags"] = context.get("metatags", "") + STYLE


# The links of a page's contents are large enough for a finger.
STYLE = """<style>
.toc-tree li a { display: inline-block; padding: 0.25rem 0 }
td.head { background: var(--color-table-header-background) }
</style>"""

# What is wider than the screen can be scrolled with the keys, and both sidebars have a name.
SCRIPT = """
function focusWhatScrolls() {
  for (const box of document.querySelectorAll("pre, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
function nameSidebars() {
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "On this page");
}
addEventListener("load", focusWhatScrolls);
addEventListener("load", nameSidebars);
addEventListener("resize", focusWhatScrolls);
"""


def setup(app: Sphinx) -> None:
    """Have Sphinx call these."""
    app.connect("doctree-read", leave_out_empty_heads)
    # After furo has made its navigation.
    app.connect("html-page-context", make_accessible, priority=900)
    app.add_js_file(None, body=SCRIPT)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", leave_to_class)
    # Before Sphinx collects the images that it copies.
    app.connect("doctree-read", put_drawings_in, priority=400)
