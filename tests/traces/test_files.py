"""A file is read by what is in it; what is not read is refused with what to give instead."""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rsag.errors import UsageError
from rsag.traces.events import Format
from rsag.traces.files import read_trace

HEADER = "NVTX Range,NVTX Inst,Kern Inst,Total Time (ns),Kernel Name\n"


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_trace(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fr_ok.rank0.pkl", Format.FLIGHT_RECORDER),
        ("fr_ok.rank0.json", Format.FLIGHT_RECORDER),
        ("nccl_info_tuning.log", Format.NCCL_LOG),
        ("eager.rank0.json.gz", Format.KINETO),
    ],
)
def test_our_recordings_are_known_by_their_content(
    recorded: Callable[[str], Path], tmp_path: Path, name: str, expected: Format
) -> None:
    misnamed = tmp_path / "x.bin"
    misnamed.write_bytes(recorded(name).read_bytes())
    assert expected == read_trace(misnamed).format


def test_a_table_of_nsys_is_known_by_its_header(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(HEADER)
    assert Format.NSYS_CSV == read_trace(tmp_path / "x").format


def test_an_export_of_nsys_is_known_by_its_tables(public: Callable[[str], Path]) -> None:
    assert Format.NSYS_SQLITE == read_trace(public("nsys/mock.sqlite")).format


@pytest.mark.parametrize("name", ["step.nsys-rep", "step.qdrep", "STEP.NSYS-REP"])
def test_a_closed_report_is_refused_with_the_command_that_exports_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"QuadD\x00")
    assert f"nsys export --type sqlite --output {Path(name).stem}.sqlite {name}" in refusal(tmp_path / name)


def test_an_execution_trace_is_refused_with_what_to_capture(tmp_path: Path) -> None:
    text = '{"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": []}'
    for content in (text.encode(), gzip.compress(text.encode())):
        (tmp_path / "et.json").write_bytes(content)
        assert "torch.profiler" in refusal(tmp_path / "et.json")


def test_the_published_execution_trace_is_refused_for_what_it_is(public: Callable[[str], Path]) -> None:
    assert "an execution trace" in refusal(public("param/resnet_2gpu_et.json.gz"))


def test_archives_are_refused_with_unpack(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.json")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.json")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.write(tmp_path / "a.json")
    assert all("unpack it" in refusal(tmp_path / f"a.{kind}") for kind in ("tar.gz", "tar", "zip"))


@pytest.mark.parametrize(
    ("content", "expected"), [(b"PAR1\x15\x04", "Parquet"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz")]
)
def test_other_containers_are_named(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "x").write_bytes(content)
    assert expected in refusal(tmp_path / "x")


def test_what_is_not_known_is_refused_with_all_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x7fELF\x02")
    message = refusal(tmp_path / "x")
    for word in ("torch.profiler", "Nsight Systems", "nvtx_kern_sum", "NCCL logs", "flight-recorder"):
        assert word in message


def test_nothing_a_folder_and_an_empty_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert "not there" in refusal(tmp_path / "nothing")
    assert "a folder" in refusal(tmp_path)
    assert "empty" in refusal(tmp_path / "empty")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")


def test_a_pickle_of_something_else_never_runs(tmp_path: Path) -> None:
    (tmp_path / "x.pkl").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
    assert "os.system" in refusal(tmp_path / "x.pkl")


def test_other_formats_compressed_are_refused_with_decompress(recorded: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(recorded("nccl_info_tuning.log").read_bytes()))
    assert "decompress it" in refusal(tmp_path / "x.gz")
