#!/usr/bin/env python
"""Django's command line for the example project."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

from example_project.embedded import ensure_server
from example_project.server import ServerError


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    try:
        if sys.argv[1:2] == ["runserver"]:
            # This process outlives the reloader's children, and so the data a change of the code.
            ensure_server()
        execute_from_command_line(sys.argv)
    except ServerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
