"""Bytes on the wire: the kernel's counters of this process's own sockets, and why there may be none."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rsag.plan import make_plan
from rsag.plan.latency import plan_latency
from rsag.rank.context import Context, Record
from rsag.rank.wire import observe_wire, tcp_bytes
from rsag.records.latency import WireRow
from rsag.records.plan import Backend, Experiment
from rsag.units import KIB, MIB

CPU = torch.device("cpu")


@contextlib.contextmanager
def tcp_pair(host: str = "127.0.0.1") -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one connection, both in this process."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        one = socket.create_connection(server.getsockname()[:2])
        other, _ = server.accept()
    with one, other:
        yield one, other


def pour(one: socket.socket, other: socket.socket, num_bytes: int) -> None:
    """Through the connection, in pieces that its buffers hold, until all of it is read and acknowledged."""
    for start in range(0, num_bytes, 32 * KIB):
        piece = min(32 * KIB, num_bytes - start)
        one.sendall(bytes(piece))
        while piece:
            piece -= len(other.recv(piece))


def counted(action: Callable[[], object]) -> tuple[int, int]:
    before = tcp_bytes()
    action()
    after = tcp_bytes()
    return after[0] - before[0], after[1] - before[1]


# -------------------------------------------------------------------------------------------------------------- sockets


@pytest.mark.parametrize("num_bytes", [1, 1000, MIB])
def test_both_ends_count_to_the_byte(num_bytes: int) -> None:
    with tcp_pair() as (one, other):
        assert (num_bytes, num_bytes) == counted(lambda: pour(one, other, num_bytes))


PEER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as one:
    one.recv(3000, socket.MSG_WAITALL)
    one.sendall(bytes(500))
    one.recv(1)
"""


def test_what_is_sent_and_what_is_received_are_kept_apart() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen([sys.executable, "-c", PEER, str(server.getsockname()[1])]) as peer,
    ):
        own, _ = server.accept()
        with own:

            def talk() -> None:
                own.sendall(bytes(3000))
                assert 500 == len(own.recv(500, socket.MSG_WAITALL))

            assert (3000, 500) == counted(talk)
        assert 0 == peer.wait()


def test_ipv6_counts_as_well() -> None:
    try:
        with tcp_pair("::1") as (one, other):
            assert (2000, 2000) == counted(lambda: pour(one, other, 2000))
    except OSError as error:
        pytest.skip(f"no IPv6 on loopback here: {error}")


def test_what_is_no_tcp_socket_is_passed_over() -> None:
    left, right = socket.socketpair()
    reader, writer = os.pipe()
    with left, right, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram, open(os.devnull, "wb") as file:
        datagram.bind(("127.0.0.1", 0))

        def talk() -> None:
            left.sendall(b"x" * 1000)
            right.recv(1000)
            datagram.sendto(b"x" * 1000, datagram.getsockname())
            datagram.recv(1000)
            os.write(writer, b"x" * 1000)
            file.write(b"x" * 1000)

        assert (0, 0) == counted(talk)
    os.close(reader)
    os.close(writer)


def test_a_listening_socket_has_nothing_to_say() -> None:
    with socket.create_server(("127.0.0.1", 0)):
        assert (0, 0) == counted(lambda: None)


def test_reading_leaves_no_descriptor_behind_and_no_socket_closed() -> None:
    with tcp_pair() as (one, other):
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(100):
            tcp_bytes()
        assert before == sorted(os.listdir("/proc/self/fd"))
        pour(one, other, 10)


def test_a_hundred_sockets_are_read_in_a_few_milliseconds() -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(tcp_pair())
        tcp_bytes()
        began_s = time.perf_counter()
        tcp_bytes()
        assert time.perf_counter() - began_s < 0.1


def test_a_kernel_that_does_not_count_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with tcp_pair():
        monkeypatch.setattr("rsag.rank.wire._INFO_BYTES", 192)  # what Linux 4.9 fills
        assert (-1, -1) == tcp_bytes()


# -------------------------------------------------------------------------------------------------- rows without bytes


def observed(backend: Backend) -> list[WireRow]:
    """The rows of the experiment on one rank at 1 KiB."""
    timing = plan_latency(world_size=1, backend=backend, sizes=(KIB,), candidates=("rs_ag_in_place",))
    plan = make_plan(world_size=1, backend=backend, experiments=(Experiment.WIRE,), latency=timing)
    rows: list[Record] = []
    context = Context(
        plan=plan, rank=0, world_size=1, device=CPU, out=Path(), control=None, capabilities=None, write=rows.append
    )
    observe_wire(context)
    return [row for row in rows if isinstance(row, WireRow)]


def why_not(rows: list[WireRow]) -> str:
    """The one reason that all rows give for having no bytes."""
    assert [0, 1] == [row.arm for row in rows]
    assert {(None, None, 0, "")} == {(row.sent_bytes, row.received_bytes, row.calls, row.counter) for row in rows}
    [reason] = {row.reason for row in rows}
    return reason


@pytest.mark.usefixtures("one_rank")
def test_one_rank_sends_nothing_and_every_arm_but_the_control_has_its_row() -> None:
    rows = observed(Backend.GLOO)
    assert [(0, 0, 3), (0, 1, 3)] == [(row.case, row.arm, row.calls) for row in rows]
    assert {(0.0, 0.0, "")} == {(row.sent_bytes, row.received_bytes, row.reason) for row in rows}
    assert {"TCP_INFO of this process's stream sockets"} == {row.counter for row in rows}


@pytest.mark.usefixtures("one_rank")
def test_nvlink_without_its_library_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "NVLink's counters cannot be read: nvidia-ml-py is not installed; pip install nvidia-ml-py" == why_not(
        observed(Backend.NCCL)
    )


class NVMLError(Exception):
    pass


def nvml(*, codes: tuple[int, int] = (0, 0), error: str | None = None) -> SimpleNamespace:
    """A driver whose counters give these return codes, or that cannot be reached."""

    def init() -> None:
        if error is not None:
            raise NVMLError(error)

    values = [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(ullVal=0)) for code in codes]
    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=init,
        nvmlDeviceGetHandleByIndex=lambda index: object(),
        nvmlDeviceGetFieldValues=lambda handle, fields: values,
    )


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (nvml(error="Driver Not Loaded"), "NVLink's counters cannot be read: NVML: Driver Not Loaded"),
        (nvml(codes=(3, 3)), "NVML has no NVLink data counters here"),
    ],
)
def test_nvlink_that_cannot_be_read_says_why(
    driver: SimpleNamespace, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: SimpleNamespace())
    assert reason == why_not(observed(Backend.NCCL))


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda patch: patch.delattr("socket.TCP_INFO"), "TCP_INFO is Linux's"),
        (lambda patch: patch.setattr("rsag.rank.wire.tcp_bytes", lambda: (-1, -1)), "it came with 4.19"),
    ],
)
def test_tcp_that_cannot_be_read_says_why(
    change: Callable[[pytest.MonkeyPatch], None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    assert reason in why_not(observed(Backend.GLOO))
