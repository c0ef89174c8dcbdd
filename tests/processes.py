"""What `python -m transduce` does, without its start: a fork of this process, which has loaded everything already.

It has standard streams, an exit code and an end of its own, and changes nothing here. A test of how Python starts or
ends, or of a signal that comes meanwhile, starts a real one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import torch

from transduce import cli

PIPE = 1 << 16  # bytes that nobody has read yet


class Fork:
    """A child, and what it writes."""

    def __init__(self, work: Callable[[], int | None], text: bytes = b"", **environment: str) -> None:
        reads, writes = os.pipe()
        assert len(text) <= PIPE
        os.write(writes, text)
        os.close(writes)
        self.out, self.err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115  (the child has them too)
        self.process = os.fork()
        if self.process == 0:
            _live(work, [reads, self.out.fileno(), self.err.fileno()], environment)
        os.close(reads)

    def wait(self) -> CompletedProcess[str]:
        """Its end: code, output, complaints."""
        _, status = os.waitpid(self.process, 0)
        said = []
        for stream in (self.out, self.err):
            stream.seek(0)
            said.append(stream.read().decode())
            stream.close()
        return CompletedProcess([], os.waitstatus_to_exitcode(status), *said)


def _live(work: Callable[[], int | None], streams: list[int], environment: dict[str, str]) -> None:
    """The life of the child."""
    code = 70
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.environ |= environment
        torch.set_num_threads(1)  # threads of OpenMP do not come along
        code = work() or 0
        threading._shutdown()  # as Python does at its end: what other threads still do counts too
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def transduce(*words: str | Path, text: str | bytes = "", cwd: Path | None = None) -> CompletedProcess[str]:
    """One command, and what came of it."""

    def command() -> int:
        if cwd is not None:
            os.chdir(cwd)
        return cli.main([str(word) for word in words])

    return Fork(command, text.encode() if isinstance(text, str) else text).wait()
