from __future__ import annotations

import pytest

# A report has nothing to say of most of these.
from django_setnx_lock.management.locks.patient import Workers


@pytest.mark.parametrize(
    ("environment", "known"),
    [
        ({}, Workers()),
        (
            {"GUNICORN_CMD_ARGS": "--bind=:80 -t 60"},
            Workers(timeout=60, source="GUNICORN_CMD_ARGS"),
        ),
        ({"GUNICORN_CMD_ARGS": "-t60"}, Workers(timeout=60, source="GUNICORN_CMD_ARGS")),
        ({"GUNICORN_CMD_ARGS": "--timeout=60"}, Workers(timeout=60, source="GUNICORN_CMD_ARGS")),
        ({"GUNICORN_CMD_ARGS": "--timeout 0"}, Workers()),
        ({"GUNICORN_CMD_ARGS": "--timeout"}, Workers()),
        ({"GUNICORN_CMD_ARGS": "--timeout '"}, Workers()),
        # Such workers tell by it that they are alive, whatever a request takes.
        ({"GUNICORN_CMD_ARGS": "-t 60 --threads 4"}, Workers(threads=4)),
        ({"GUNICORN_CMD_ARGS": "-t 60 -k gevent -w 3"}, Workers(count=3)),
        ({"WEB_CONCURRENCY": "5"}, Workers(count=5)),
        ({"WEB_CONCURRENCY": "5", "GUNICORN_CMD_ARGS": "--workers=2"}, Workers(count=2)),
        ({"WEB_CONCURRENCY": "many"}, Workers()),
        ({"UWSGI_HARAKIRI": "20"}, Workers(timeout=20, source="UWSGI_HARAKIRI")),
    ],
)
def test_what_servers_read_from_the_environment_is_known(
    environment: dict[str, str], known: Workers
) -> None:
    assert Workers.known(None, environment) == known


def test_the_option_is_believed_before_the_environment() -> None:
    environment = {"GUNICORN_CMD_ARGS": "-t 60 -w 3", "UWSGI_HARAKIRI": "20"}

    known = Workers.known(45.5, environment)

    assert known == Workers(timeout=45.5, source="--worker-timeout", count=3)
