"""Metrics of locks for Prometheus; add the package to INSTALLED_APPS."""

from __future__ import annotations

from .collector import LockCollector
from .metrics import LockMetrics

__all__ = ["LockCollector", "LockMetrics"]
