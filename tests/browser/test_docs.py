"""The pages of the docs, as ``make docs`` builds them, held to WCAG 2.2 AA and good practice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.conftest import Browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo", reason="make docs installs Sphinx and its theme")
    folder = tmp_path_factory.mktemp("docs")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-b", "html", ROOT / "docs", folder],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=200,
    )
    return folder


@pytest.mark.matrix
@pytest.mark.parametrize("page", sorted(path.stem for path in ROOT.joinpath("docs").glob("*.md")))
def test_no_fault_is_found(chromium: Browser, built: Path, page: str) -> None:
    chromium.open((built / f"{page}.html").as_uri())

    # The colours of a long page take half a minute, and are the theme's.
    assert chromium.faults(of_colour=False) == set()
