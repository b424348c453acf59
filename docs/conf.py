"""What Sphinx makes the documentation with: ``make docs``."""

from __future__ import annotations

import os
from importlib.metadata import version as version_of

# The reference is made from the docstrings of what a project imports.
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
]
# Nothing is looked up elsewhere while it is built: a site that is down is no fault here.
intersphinx_mapping: dict[str, tuple[str, None]] = {}
exclude_patterns = ["_build"]

# Settings and checks are flat lists, whose entries are of one size with those of other pages.
suppress_warnings = ["myst.header"]
myst_enable_extensions = ["colon_fence"]
# As on GitHub, so that links to headings work in both places.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
default_role = "code"

html_theme = "furo"
html_title = project
html_static_path: list[str] = []
