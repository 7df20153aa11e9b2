"""Processes of a run meet, agree, and end together; all of it without JAX, which they would join afterwards."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from purejax_sc.cli.commands import main
from purejax_sc.cli.setup import UserError
from purejax_sc.cli.together import processes, roll_call
from purejax_sc.cli.together.links import Link, Message, listen, parse_address
from purejax_sc.cli.together.relay import start_relay
from purejax_sc.cli.together.roll_call import Place

# One process of a run that has nothing to compute: it meets the others, watches them, and does as it is told.
MEMBER = """
import sys, time
from purejax_sc.cli.together import watch
from purejax_sc.cli.together.links import parse_address
from purejax_sc.cli.together.roll_call import Place, attend, gather
watch.TICK_SECONDS, watch.LOOK_SECONDS = 0.05, 1
port, num, process = map(int, sys.argv[1:4])
place = Place(parse_address(f"127.0.0.1:{port}"), num, process, 30)
links = {0: attend(place, {}, print)} if process else gather(place, {}, print)
others = watch.Watch(process, links, "go on with --resume", lambda: None)
print("here", flush=True)
for word in sys.stdin:
    match word.split():
        case ["done"]:
            others.finish()
            others.close()
            break
        case ["fail"]:
            others.end("a full disk", 2, watch.FAILED)
        case ["stop"]:
            others.end("stopped", 130, watch.STOPPED)
        case ["look"]:
            others.look_around()
            print("nobody is lost", flush=True)
"""


Process = subprocess.Popen[str]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def place(port: int, process: int, num: int = 2, wait: int = 30) -> Place:
    return Place(parse_address(f"127.0.0.1:{port}"), num, process, wait)


def come(port: int, message: Message) -> Link:
    """A process that speaks once, as soon as the first one listens."""
    while True:
        try:
            link = Link(socket.create_connection(("127.0.0.1", port)))
        except ConnectionRefusedError:
            continue
        link.send(message)
        return link


def refusal(future: "Future[object]") -> str:
    error = future.exception(timeout=30)
    assert isinstance(error, UserError)
    return error.format_message()


@pytest.fixture
def members() -> Iterator[list[Process]]:
    """Three processes that have met."""
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(port), "3", str(i)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
    yield started
    for process in started:
        process.kill()
        process.communicate()


def tell(process: Process, word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def end(process: Process) -> tuple[int, str]:
    """Exit status and stderr."""
    status = process.wait(timeout=30)  # `communicate` would close stdin, which ends a member
    assert process.stderr is not None
    return status, process.stderr.read()


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("127.0.0.1:notaport", "'notaport' is not a port: give a number from 1 to 65535 after 127.0.0.1:"),
        ("127.0.0.1:0", "'0' is not a port: give a number from 1 to 65535 after 127.0.0.1:"),
        ("host:65536", "'65536' is not a port: give a number from 1 to 65535 after host:"),
        ("host:", "'' is not a port: give a number from 1 to 65535 after host:"),
        ("host", "give HOST:PORT, such as host0:1234 or [::1]:1234"),
        (":1234", "give HOST:PORT, such as host0:1234 or [::1]:1234"),
        ("::1:1234", "give HOST:PORT, such as host0:1234 or [::1]:1234"),
    ],
)
def test_an_address_is_checked(address: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--coordinator", address, "--num-processes", "2", "--process-id", "0"]
    assert main(["train", "smoke", *words]) == 2
    assert capsys.readouterr().err == f"purejax-sc: --coordinator {address}: {line}\n"


def test_a_machine_that_nobody_knows_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"--coordinator no..such:1: cannot find a machine called no..such \(.+\): corr"
    ):
        parse_address("no..such:1")


def test_addresses_may_be_of_version_6() -> None:
    assert parse_address("[::1]:1234")[1:] == ("::1", 1234)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--process-id", "1"], "--coordinator, --num-processes and --process-id go together: give all three or none"),
        (["--wait", "5"], "--wait has no effect, as this is the only process: leave it out"),
        (
            ["--coordinator", "localhost:1", "--num-processes", "2", "--process-id", "2"],
            "--process-id 2 is not below --num-processes 2: count from 0",
        ),
    ],
)
def test_options_of_processes_are_checked(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "smoke", *words]) == 2
    assert capsys.readouterr().err == f"purejax-sc: {line}\n"


def test_a_cluster_says_which_process_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"JOB_ID": "4096", "STEP_NODELIST": "localhost", "NTASKS": "3", "PROCID": "2", "LOCALID": "0"}
    for name, value in names.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert processes.find_place(None, None, None, None) == (("localhost:61440", "localhost", 61_440), 3, 2, 300)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert processes.find_place(None, None, None, None) is None


def test_a_port_that_is_taken_is_named() -> None:
    with listen(parse_address(f"127.0.0.1:{(port := free_port())}")), pytest.raises(UserError) as error:
        roll_call.gather(place(port, 0), {}, pytest.fail)
    assert error.value.format_message() == (
        f"--coordinator 127.0.0.1:{port}: process 0 cannot listen at port {port} (Address already in use): choose"
        " another port, or end what uses this one"
    )


def test_processes_that_agree_meet_and_leave_the_port_to_jax() -> None:
    port, facts = free_port(), {"seed": "1"}
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(roll_call.attend, place(port, i, 3), facts, pytest.fail) for i in (2, 1)]
        links = roll_call.gather(place(port, 0, 3), facts, pytest.fail)
        assert sorted(links) == [1, 2]
        with listen(parse_address(f"127.0.0.1:{port}")):
            links[2].send({"a": 1})
            link = others[0].result()
            assert link.receive() == {"a": 1}
        for each in (*links.values(), link, others[1].result()):
            each.close()


def test_processes_that_differ_all_learn_in_what() -> None:
    port = free_port()
    ours, theirs = {"jax": "1", "train.log_points": "10"}, {"jax": "1", "train.log_points": "5", "sc.new": "0"}
    with ThreadPoolExecutor() as pool:
        first = pool.submit(roll_call.gather, place(port, 0, 3), ours, pytest.fail)
        same = come(port, {"process": 1, "facts": ours})
        assert same.receive() == {"missing": [2]}
        other = pool.submit(roll_call.attend, place(port, 2, 3), theirs, pytest.fail)
        differs = "process 2 has train.log_points=5, process 0 has train.log_points=10"
        line = f"{differs}: start all processes with the same configuration, options and versions"
        assert [refusal(first), refusal(other), same.receive()] == [line, line, {"end": line}]
        same.close()


def test_what_only_one_side_has_is_a_difference() -> None:
    assert (roll_call.difference(1, {"new": "0"}, {}) or "").startswith("process 1 has new=0, process 0 has new=None")


def test_facts_are_versions_options_settings_and_the_configuration() -> None:
    facts = processes.facts({"sc": {"unroll": 3}, "seed": 0}, seeds=2)
    assert {"python", "jax", "jaxlib", "purejax_sc", "jax_enable_x64"} < set(facts)
    assert (facts["--seeds"], facts["sc.unroll"], facts["seed"]) == ("2", "3", "0")


def test_waiting_says_for_whom_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll_call, "NOTICE_SECONDS", 0.1)
    port, said = free_port(), list[str]()
    how = f"start it with --coordinator 127.0.0.1:{port} --num-processes 2 --process-id"
    with pytest.raises(UserError) as error:
        roll_call.gather(place(port, 0, wait=1), {}, said.append)
    assert said == [f"waiting for process 1 of 2 (up to 1 s): {how} 1"]
    assert error.value.format_message() == (
        f"process 1 of 2 did not come to 127.0.0.1:{port} within 1 s: {how} 1, or wait longer with --wait SECONDS"
    )
    with pytest.raises(UserError, match=f"^process 0 of 2 did not come .* {how} 0, or wait longer"):
        roll_call.attend(place(port, 1, wait=1), {}, said.append)
    assert said[1:] == [f"waiting for process 0 of 2 (up to 1 s): {how} 0"]


def test_who_waits_at_another_process_knows_who_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll_call, "NOTICE_SECONDS", 0.5)
    port = free_port()
    with ThreadPoolExecutor() as pool:
        said = list[str]()
        other = pool.submit(roll_call.attend, place(port, 2, 4), {}, said.append)
        with pytest.raises(UserError, match="processes 1 and 3 of 4 did not come"):
            roll_call.gather(place(port, 0, 4, wait=1), {}, lambda text: None)
        assert refusal(other).startswith(f"processes 1 and 3 of 4 did not come to 127.0.0.1:{port} within 1 s: ")
        how = f"start each with --coordinator 127.0.0.1:{port} and its --process-id"
        assert said == [f"waiting for processes 1 and 3 of 4 (up to 30 s): {how}"]


def test_strangers_are_left_alone_and_nobody_comes_twice() -> None:
    port = free_port()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(roll_call.gather, place(port, 0, 3), {}, lambda text: None)
        early = come(port, {"process": 1, "facts": {}})
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b'{"process": "1"}\n'):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                stranger.sendall(data)
                with suppress(ConnectionResetError):
                    assert stranger.recv(1) == b""
        with socket.create_connection(("127.0.0.1", port)):  # one that says nothing
            twice = pool.submit(roll_call.attend, place(port, 0, 3), {}, pytest.fail)
            assert refusal(twice) == "there is a process 0 already: give each process its own --process-id"
            late = pool.submit(roll_call.attend, place(port, 2, 3), {}, pytest.fail)
            links = first.result(timeout=30)
        for link in (*links.values(), early, late.result()):
            link.close()


def test_a_process_that_leaves_before_all_have_come_ends_the_waiting() -> None:
    port = free_port()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(roll_call.gather, place(port, 0, 3), {}, lambda text: None)
        link = come(port, {"process": 1, "facts": {}})
        assert link.receive() == {"missing": [2]}
        link.close()
        assert refusal(first) == "process 1 is gone before all have come: start all processes again"


@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, ""), (signal.SIGSTOP, ", which is silent")])
def test_a_lost_process_ends_the_others(lost: int, number: signal.Signals, how: str, members: list[Process]) -> None:
    members[lost].send_signal(number)
    for i in {0, 1, 2} - {lost}:
        assert end(members[i]) == (2, f"purejax-sc: lost process {lost}{how}: go on with --resume\n")


@pytest.mark.parametrize("first", [0, 1])
def test_an_error_ends_the_others_with_their_own_line(first: int, members: list[Process]) -> None:
    tell(members[first], "fail")
    assert end(members[first]) == (2, "purejax-sc: a full disk\n")
    for i in {0, 1, 2} - {first}:
        why = f"purejax-sc: process {first} ended with an error: see its message: go on with --resume\n"
        assert end(members[i]) == (2, why)


def test_all_may_stop_together(members: list[Process]) -> None:
    for process in members:
        tell(process, "stop")
    assert [end(process) for process in members] == [(130, "purejax-sc: stopped\n")] * 3


def test_all_end_well_when_all_are_done(members: list[Process]) -> None:
    for process in members[:2]:
        tell(process, "done")
    with pytest.raises(subprocess.TimeoutExpired):  # they wait for the last one
        members[0].wait(timeout=0.5)
    assert members[1].poll() is None
    tell(members[2], "done")
    assert [end(process) for process in members] == [(0, "")] * 3


def test_an_error_that_another_caused_is_told_as_such(members: list[Process]) -> None:
    tell(members[1], "look")
    tell(members[2], "stop")
    assert end(members[1]) == (2, "purejax-sc: process 2 was stopped: go on with --resume\n")


def test_an_error_that_nobody_else_caused_goes_on(members: list[Process]) -> None:
    tell(members[1], "look")
    assert members[1].stdout is not None
    assert members[1].stdout.readline() == "nobody is lost\n"
    assert [process.poll() for process in members] == [None] * 3


def test_jax_does_not_see_that_its_coordinator_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as far:
        near = parse_address(start_relay(parse_address(f"127.0.0.1:{far.getsockname()[1]}")))
        with socket.create_connection(near[1:], timeout=0.5) as client:
            client.sendall(b"question")
            service = far.accept()[0]
            assert service.recv(100) == b"question"
            service.sendall(b"answer")
            assert client.recv(100) == b"answer"
            service.close()
            with pytest.raises(TimeoutError):
                client.recv(1)
