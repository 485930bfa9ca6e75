"""Every reader on inputs that libFuzzer grows from small real files: a capture or a UsageError, and nothing else.

`make fuzz` runs it for a minute; further arguments are libFuzzer's, as in `fuzz_readers.py -max_total_time=3600`.
"""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rsag"]):
    from rsag.errors import UsageError
    from rsag.traces.files import READERS, read_trace
    from rsag.traces.kernel_names import decode, is_communication

RECORDINGS = Path(__file__).resolve().parents[1] / "data" / "traces"
CSV = b"""NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Kernel Name
:direct,PushPop,1,2,5,5,1000,200.0,"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
"""
SQL = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'ncclDevKernel_AllGather_RING_LL'), (2, 'cudaLaunchKernel'), (3, 'step');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, "end", deviceId, streamId, correlationId, globalPid, shortName);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 7, 1, 16777216, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", globalTid, correlationId, nameId);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 16777217, 1, 2);
CREATE TABLE NVTX_EVENTS (start, "end", eventType, globalTid, domainId, text, textId);
INSERT INTO NVTX_EVENTS VALUES (0, 9, 59, 16777217, 0, NULL, 3), (0, NULL, 75, 16777217, 1, 'NCCL', NULL);
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        corpus, path = Path(folder) / "corpus", Path(folder) / "input"
        corpus.mkdir()
        seed(corpus)

        def one_input(data: bytes) -> None:
            path.write_bytes(data)
            with contextlib.suppress(UsageError):
                read_trace(path)
            for reader in READERS:
                with contextlib.suppress(UsageError):
                    quarantine = reader.read(path).quarantine
                    assert quarantine.num_skipped <= quarantine.num_seen
            name = data.decode("latin-1")
            assert is_communication(name) == (decode(name) is not None)

        atheris.Setup([*sys.argv, str(corpus)], one_input)
        atheris.Fuzz()


def seed(corpus: Path) -> None:
    """Small inputs of each format to start from."""
    for recording in RECORDINGS.iterdir():
        if recording.stat().st_size < 64 << 10:
            content = recording.read_bytes()
            (corpus / recording.name).write_bytes(content)
            if recording.suffix == ".gz":
                (corpus / recording.stem).write_bytes(gzip.decompress(content))
    (corpus / "sum.csv").write_bytes(CSV)
    with contextlib.closing(sqlite3.connect(corpus / "export.sqlite")) as database:
        database.execute("PRAGMA page_size = 512")
        database.executescript(SQL)


if __name__ == "__main__":
    main()
