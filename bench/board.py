"""A number that processes add to by reading and writing it: what a lock is for."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_NUMBER = struct.Struct("q")


class Board:
    """The number, in a file. Reading and writing are apart, so overlapping turns lose updates."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _NUMBER.size)

    @staticmethod
    def make(path: Path) -> None:
        path.write_bytes(_NUMBER.pack(0))

    def read(self) -> int:
        (number,) = _NUMBER.unpack_from(self._memory)
        return int(number)

    def write(self, number: int) -> None:
        _NUMBER.pack_into(self._memory, 0, number)
