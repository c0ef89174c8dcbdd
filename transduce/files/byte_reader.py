"""Numbers from bytes, in order, for files that somebody else may have made: none is read beyond their end."""

from __future__ import annotations

import struct
from typing import Any


class ByteReader:
    """Little-endian; a ValueError says that there is no more. `content`: bytes, or a file that is mapped."""

    def __init__(self, content: Any) -> None:
        self.content, self.place = content, 0

    def bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self.content) - self.place:
            raise ValueError("it ends too early")
        self.place += count
        return self.content[self.place - count : self.place]

    def numbers(self, form: str) -> tuple[Any, ...]:
        """As struct has it: "2i" are two of four bytes."""
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(f"<{form}")))
