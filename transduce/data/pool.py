"""Worker processes that tokenize, one a core; their answers come in the order of the chunks."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from transduce.data.tokenize import Chunk, Job, Sampling, Tokenized, tokenize
from transduce.errors import DataError
from transduce.settings.sections import DataSettings, TextSettings
from transduce.signals import follow_parent, usable_cores
from transduce.text.tokenizers import Tokenizers


def tokenize_all(chunks: Iterator[Chunk], jobs: Sequence[Job]) -> Iterator[Tokenized]:
    """Every chunk by the job of its part; on all cores once a part has more than one chunk's worth of text."""
    head = list(itertools.islice(chunks, len(jobs) + 1))
    if len(head) <= len(jobs):
        yield from (tokenize(chunk, jobs[chunk.part]) for chunk in head)
        return
    workers = usable_cores()
    # fork, where there is one, does not run the user's script again; workers touch neither torch nor a GPU
    start = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    tokenizers = jobs[0].tokenizers
    given = (tokenizers.files(), tokenizers.settings, [job[1:] for job in jobs])
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, start, _start_worker, given) as pool:
        try:
            yield from _in_order(pool, itertools.chain(head, chunks), 2 * workers)
        except BrokenProcessPool as error:
            raise DataError(
                "a process that tokenized text was ended from outside, perhaps for lack of memory; start again with "
                "more of it"
            ) from error
        except BaseException:  # Ctrl-C, say: nobody waits for what they still have to do
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise


def _in_order(pool: ProcessPoolExecutor, chunks: Iterator[Chunk], most: int) -> Iterator[Tokenized]:
    """`most`: chunks that wait in memory."""
    pending: list[Future[Tokenized]] = []
    for chunk in chunks:
        pending.append(pool.submit(_tokenize_there, chunk))
        if len(pending) > most:
            yield pending.pop(0).result()
    for future in pending:
        yield future.result()


_jobs: list[Job]  # of a worker


def _start_worker(
    files: dict[str, bytes], text: TextSettings, jobs: Sequence[tuple[DataSettings, Sampling | None, bool]]
) -> None:
    global _jobs
    follow_parent()
    tokenizers = Tokenizers.from_files(files, text)
    _jobs = [Job(tokenizers, *job) for job in jobs]


def _tokenize_there(chunk: Chunk) -> Tokenized:
    return tokenize(chunk, _jobs[chunk.part])
