"""Metrics of locks for Prometheus; add the package to INSTALLED_APPS."""

from __future__ import annotations

from .metrics import LockCollector, LockMetrics

__all__ = ["LockCollector", "LockMetrics"]
