"""Ranks that end by themselves: what they are given, and what is told of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from launching import Launch
from rsag.errors import UsageError
from rsag.launch import ForkServer, Outcome, RankDeath, RankStart, run_ranks


def logs(out: Path) -> list[str]:
    return [path.read_text() for path in sorted(out.glob("rank-*.log"))]


def test_ranks_that_return_nothing_are_ok(launch: Launch) -> None:
    report = launch("show", world_size=3)
    assert (report.outcome, report.cause, report.num_killed) == (Outcome.OK, None, 0)
    assert sorted((d.rank, d.exit_code, d.signal) for d in report.deaths) == [(0, 0, None), (1, 0, None), (2, 0, None)]


def test_each_rank_knows_its_place(launch: Launch, tmp_path: Path) -> None:
    launch("show", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    assert logs(tmp_path) == ["0 2 0 2\n", "1 2 1 2\n"]


def test_arguments_arrive_unchanged_and_both_streams_reach_the_log(launch: Launch, tmp_path: Path) -> None:
    arguments = ["--size", "1 MiB", "ß\n"]
    launch("show_arguments", *arguments, world_size=1)
    first, second = logs(tmp_path)[0].splitlines()
    assert arguments == json.loads(first)
    assert second == "to standard error"


def test_ranks_see_the_given_environment_and_no_other(tmp_path: Path, environment: dict[str, str]) -> None:
    with ForkServer(out=tmp_path, environment={**environment, "OF_SERVER": "1"}) as server:
        report = server.run(
            entry="toys:show",
            arguments=["OF_SERVER"],
            world_size=1,
            out=tmp_path,
            deadline_s=20,
            environment={**environment, "OF_RANK": "1"},
        )
    assert Outcome.RANK_DIED is report.outcome
    assert "KeyError: 'OF_SERVER'" in logs(tmp_path)[0]


@pytest.mark.parametrize("variable", ["GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"])
def test_sockets_are_bound_to_loopback_whatever_the_caller_had(
    variable: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    run_ranks(
        entry="toys:show",
        arguments=[variable],
        world_size=1,
        out=tmp_path,
        deadline_s=20,
        environment={**environment, variable: "ib7"},
    )
    assert logs(tmp_path) == ["lo\n"]


@pytest.mark.parametrize(("returned", "exit_code"), [("0", 0), ("3", 3), ("256", 1), ("-1", 1)])
def test_the_exit_code_is_what_the_entry_returns_and_never_wraps_to_0(
    returned: str, exit_code: int, launch: Launch
) -> None:
    report = launch("give", returned, world_size=1)
    assert exit_code == report.deaths[0].exit_code


def test_sys_exit_sets_the_exit_code(launch: Launch) -> None:
    assert launch("leave", "4", world_size=1).deaths[0].exit_code == 4


def test_starts_and_deaths_are_told_as_they_happen(launch: Launch) -> None:
    events: list[RankStart | RankDeath] = []
    report = launch("show", on_event=events.append)
    assert [(RankStart, 0), (RankStart, 1)] == [(type(e), e.rank) for e in events if isinstance(e, RankStart)]
    assert list(report.deaths) == [e for e in events if isinstance(e, RankDeath)]


def test_one_fork_server_runs_group_after_group_even_after_a_crash(tmp_path: Path, environment: dict[str, str]) -> None:
    stores, outcomes = [], []
    with ForkServer(out=tmp_path, environment=environment) as server:
        for entry, argument in (("show", "RSAG_STORE"), ("kill_itself_on", "0"), ("show", "RSAG_STORE")):
            report = server.run(entry=f"toys:{entry}", arguments=[argument], world_size=1, out=tmp_path, deadline_s=20)
            outcomes.append(report.outcome)
            stores.append(logs(tmp_path)[0])
    assert outcomes == [Outcome.OK, Outcome.RANK_DIED, Outcome.OK]
    assert len(set(stores)) == 3, "every run has a store of its own"


def test_preloaded_modules_are_there_before_the_rank_starts(tmp_path: Path, environment: dict[str, str]) -> None:
    run_ranks(
        entry="toys:show_modules",
        arguments=["wave", "colorsys"],
        world_size=1,
        out=tmp_path,
        deadline_s=20,
        preload=["wave"],
        environment=environment,
    )
    assert logs(tmp_path)[0].startswith("[True, False]")


def test_what_preloaded_modules_print_and_read_does_not_disturb(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "chatty.py").write_text("import sys; print('hello', repr(sys.stdin.read()))")
    report = run_ranks(
        entry="toys:show",
        arguments=[],
        world_size=1,
        out=tmp_path,
        deadline_s=20,
        preload=["chatty"],
        environment={**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{tmp_path}"},
    )
    assert report.outcome is Outcome.OK
    assert "hello ''" in (tmp_path / "launch.log").read_text()


def test_a_module_in_the_current_directory_does_not_replace_the_library_s(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('the wrong json')\n")
    monkeypatch.chdir(tmp_path)
    report = run_ranks(
        entry="toys:show", arguments=[], world_size=1, out=tmp_path, deadline_s=20, environment=environment
    )
    assert Outcome.OK is report.outcome


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"world_size": 0}, "got world size 0"),
        ({"deadline_s": 0.0}, "got a deadline of 0.0 s"),
        ({"entry": "toys.show"}, "expected package.module:function"),
    ],
)
def test_an_impossible_request_is_refused_before_anything_starts(
    changed: dict[str, object], text: str, tmp_path: Path
) -> None:
    request = {"entry": "toys:show", "arguments": [], "world_size": 1, "deadline_s": 1.0, **changed}
    with pytest.raises(UsageError, match=text):
        run_ranks(out=tmp_path / "out", environment=os.environ, **request)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_a_closed_fork_server_says_so(tmp_path: Path, environment: dict[str, str]) -> None:
    with ForkServer(out=tmp_path, environment=environment) as server:
        pass
    with pytest.raises(UsageError, match="not running"):
        server.run(entry="toys:show", arguments=[], world_size=1, out=tmp_path, deadline_s=1)
