"""The campaign of attacks: that it sees what went wrong, and its short form."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import campaign
import pytest
from attacks import levels, runs, table
from attacks.base import Attack, Case, Outcome, Result, Site, fault

# These train an agent first. Of what they attack, tests of checkpoints, signals and GTP see much in less time.
LONG = {"GTP lines", "hostile engines", "flipped bits", "other damages", "full disk", "signals, on the device"}
SHORT = [
    pytest.param(attack, id=attack.name, marks=[pytest.mark.slow] if attack.name in LONG else [])
    for attack in table.ATTACKS
    if attack.short
]
COMMAND = Path(sys.executable).parent / "purejax-sc"
SCRIPT = """#!{python}
import sys
print("words", *sys.argv[1:])
{body}
"""


def make_site(root: Path, body: str = "") -> Site:
    """A site whose command is a script of our own."""
    command = root / "command"
    command.write_text(SCRIPT.format(python=sys.executable, body=body))
    command.chmod(0o755)
    return Site(command, root, patience=2.0)


def test_a_refusal_is_one_line() -> None:
    assert fault(Result(2, "", "purejax-sc: no such key: did you mean env?\n")) is None
    assert fault(Result(0, "", "")) is None
    assert "exit status 1" in str(fault(Result(1, "", "purejax-sc: what\n")))
    assert "2 line(s)" in str(fault(Result(2, "", "compiling\npurejax-sc: what\n")))
    assert fault(Result(2, "", "compiling\npurejax-sc: what\n"), one_line=False) is None
    assert "0 line(s)" in str(fault(Result(2, "", "")))
    assert "exit status -9" in str(fault(Result(-9, "", "")))


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n",
        "jax.errors.JaxRuntimeError: INTERNAL\n",
        "WARNING:absl:Metadata file does not exist\n",
        "E1122 19:40:54.123456 1234 coordination_service.cc:12] gone\n",
        "terminate called after throwing an instance of 'std::bad_alloc'\n",
    ],
)
def test_what_libraries_log_is_no_message(text: str) -> None:
    assert fault(Result(0, "", text)) is not None
    assert fault(Result(2, "", f"{text}purejax-sc: out of memory\n"), one_line=False) is not None


@pytest.mark.parametrize(
    ("body", "status", "err"),
    [
        ("sys.exit(2)", 2, ""),
        ("sys.exit()", 0, ""),
        ("print('no', file=sys.stderr)", 0, "no\n"),
        ("import os; os.write(2, b'from below')", 0, "from below"),
        ("while True: pass", None, ""),
    ],
)
def test_a_called_command_ends_as_its_own_process_does(body: str, status: int | None, err: str, tmp_path: Path) -> None:
    site = make_site(tmp_path, body)
    site.patience = 0.5 if status is None else 20.0
    try:
        result = site.call(["a", "b"], tmp_path)
        assert result == Result(status, "words a b\n", err)
        assert site.call(["c"], tmp_path).out == "words c\n"  # and the next one is called as well
    finally:
        site.close()


def test_a_called_command_that_dies_is_noticed_and_the_next_one_runs(tmp_path: Path) -> None:
    site = make_site(tmp_path, "import os; 'die' in sys.argv and os._exit(7)")
    site.patience = 20.0
    try:
        assert site.call(["die"], tmp_path).status is None
        assert site.call(["live"], tmp_path).status == 0
    finally:
        site.close()


def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    site = make_site(tmp_path, "import subprocess; subprocess.run(['sleep', '600'])")
    assert site.execute(["x"], tmp_path).status is None


def test_lost_files_are_named_and_those_set_aside_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "8").mkdir(parents=True)
    (tmp_path / "checkpoints" / "8" / "array").write_text("numbers")
    (tmp_path / "metrics.csv").write_text("seed\n")
    before = runs.files(tmp_path)
    (tmp_path / "checkpoints").rename(tmp_path / "checkpoints.damaged")
    assert runs.lost(before, tmp_path) is None
    (tmp_path / "metrics.csv").write_text("")
    assert runs.lost(before, tmp_path) == "metrics.csv was changed or removed"


def test_the_levels_that_must_be_taken_are_levels() -> None:
    grid = levels.make_level(random.Random(0))
    assert levels.is_level(grid)
    grid[0, 3] = 0
    assert not levels.is_level(grid)


def test_a_case_is_the_same_again_and_its_failure_says_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn: list[float] = []

    def attack(case: Case) -> Outcome:
        drawn.append(case.rng.random())
        return Outcome(("it broke",) if case.number == 1 else ())

    plan = campaign.Plan(make_site(tmp_path), seed=5, jobs=1, keep=False)
    row = campaign.make_attack(plan, Attack("mine", attack, 3, 1.0), iter(range(3)), lambda _: True)
    campaign.make_attack(plan, Attack("mine", attack, 3, 1.0), iter([1]), lambda _: True)
    assert drawn[3] == drawn[1] != drawn[0]
    assert (row.tried, row.failed) == (3, 1)
    assert '--only "mine" --case 1 --seed 5' in capsys.readouterr().out
    report = campaign.report([row], tmp_path / "table.csv")
    assert report.splitlines()[1].split()[:5] == ["mine", "3", "3", "2", "1"]
    assert (tmp_path / "table.csv").read_text().splitlines()[0].startswith("attack,tried,of,survived,failed")


def test_the_time_of_a_campaign_is_shared(tmp_path: Path) -> None:
    attacks = [Attack(name, lambda case: Outcome(), 7, 1.0) for name in ("one", "two")]
    plan = campaign.Plan(make_site(tmp_path), seed=0, jobs=1, keep=False)
    assert [row.tried for row in campaign.campaign(plan, attacks, minutes=1.0)] == [7, 7]
    assert [row.tried for row in campaign.campaign(plan, attacks, minutes=0.0)] == [0, 0]


@pytest.mark.parametrize("attack", SHORT)
def test_the_short_form_survives(attack: Attack, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    plan = campaign.Plan(site, seed=0, jobs=1, keep=False)
    row = campaign.make_attack(plan, attack, iter(range(attack.short)), lambda _: True)
    assert row.tried
    assert not row.failed, capsys.readouterr().out


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(COMMAND, tmp_path_factory.mktemp("campaign"))
    yield made
    made.close()
