"""Studies carried out: what they leave, how they go on, and the page."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from helpers.files import table
from helpers.runs import Watch, at_once, make_counter

from purejax_sc.cli.commands import main
from purejax_sc.config import ConfigError
from purejax_sc.results.files import RunError
from purejax_sc.runs import collection
from purejax_sc.runs.collection import Arm, Task
from purejax_sc.runs.parts import Part
from purejax_sc.studies import cluster, games, study
from purejax_sc.studies.study_file import Study, load_study

FILES = {
    "study.json",
    "runs",
    "programs",
    "figure.png",
    "figure.svg",
    "claims.csv",
    "scores.csv",
    "report.html",
    ".lock",
}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped study of a minute, whole, by the command line."""
    out = tmp_path_factory.mktemp("studies") / "smoke"
    assert main(["study", "smoke", "--quiet", "--out", str(out)]) == 0
    return out


def counted(out: Path, seeds: int = 2, progress=None, factories=None, **parts) -> study.Findings:
    """The same study with a trainer that counts."""
    loaded = load_study("smoke", seeds=seeds, **parts)
    how = {"progress": progress} if progress else {}
    return study.run(loaded, out, factories=factories or make_counter(), **how)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_smoke_leaves_every_file(smoke: Path) -> None:
    assert {path.name for path in smoke.iterdir()} == FILES
    for env in ("Catch", "CartPole"):
        for arm in ("none", "direct"):
            run = smoke / "runs" / env / arm / "0-1"
            assert json.loads((run / "summary.json").read_text())["status"] == "complete"
            assert f"update: {arm}" in (run / "config.yaml").read_text()


def test_an_arm_equals_its_run_by_train(smoke: Path, tmp_path: Path) -> None:
    for arm in ("none", "direct"):  # rows of one program there, with gates that are numbers
        out = tmp_path / arm
        assert main(["train", "smoke", f"sc.update={arm}", "--seeds", "2", "--quiet", "--out", str(out)]) == 0
        for ours, theirs in zip(table(smoke / "runs/Catch" / arm / "0-1"), table(out), strict=True):
            names = [name for name, cell in theirs.items() if cell and not name.startswith("loss_sc")]
            known = [float(theirs[name]) for name in names]  # `none` logs nothing of self-consistency
            assert [float(ours[name]) for name in names] == pytest.approx(known, rel=2e-3, abs=1e-5)


def test_agents_of_a_study_are_evaluated_like_any_others(smoke: Path, tmp_path: Path) -> None:
    run = shutil.copytree(smoke / "runs/Catch/direct/0-1", tmp_path / "run")
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0


def test_scores_and_claims_are_tables(smoke: Path) -> None:
    scores = rows_of(smoke / "scores.csv")
    assert len(scores) == 2 * 2 * 2 * 2  # environments, arms, metrics, seeds
    claims = rows_of(smoke / "claims.csv")
    assert [row["environment"] for row in claims] == ["Catch", "CartPole", "all"]
    assert {row["verdict"] for row in claims} <= {"holds", "does not", "undecided"}


def test_the_same_command_does_nothing_again(smoke: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in smoke.rglob("metrics.csv")}
    assert main(["study", "smoke", "--quiet", "--out", str(smoke)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in smoke.rglob("metrics.csv")}


def test_scores_are_those_of_the_curves(tmp_path: Path) -> None:
    found = counted(tmp_path / "out")
    # returns of seed s: none at first, then 10 s + 6.5, 10.5 (means of counts 5 to 8 and 9 to 12) and 14.5
    assert found.scores["Catch"]["none"]["final"] == {0: 14.5, 1: 24.5}
    assert found.failed == {}
    assert [verdict.difference for verdict in found.verdicts] == [0, 0, 0]


def test_more_seeds_and_arms_join_those_that_are_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = counted(out, arms=["none"])
    assert found.verdicts == []
    found = counted(out, seeds=3)
    assert {arm: list(row["auc"]) for arm, row in found.scores["Catch"].items()} == {
        "none": [0, 1, 2],
        "direct": [0, 1, 2],
    }
    assert sorted(path.name for path in (out / "runs/Catch/none").iterdir()) == ["0-1", "2-2"]


def test_a_study_that_is_killed_again_and_again_ends_with_the_same_numbers(tmp_path: Path) -> None:
    counted(tmp_path / "whole")
    for at in (4, 12, 8, 16):
        with pytest.raises(KeyboardInterrupt):
            counted(tmp_path / "parts", progress=Watch(at, at_once))
    counted(tmp_path / "parts")
    for run in (tmp_path / "whole/runs").glob("*/*/0-1"):
        assert table(run) == table(tmp_path / "parts" / run.relative_to(tmp_path / "whole"))
    for name in ("scores.csv", "claims.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_what_diverges_is_said_on_the_page(tmp_path: Path) -> None:
    found = counted(tmp_path / "out", factories=make_counter(bad_seed=1, bad_after=5))
    assert found.reached["Catch"]["direct"].lost == {1}
    assert "Catch/direct: seed(s) 1 met a number that is not finite" in (tmp_path / "out/report.html").read_text()


def test_what_fails_is_said_and_the_rest_goes_on(tmp_path: Path, monkeypatch) -> None:
    train_parts = collection.train_parts

    def fails(parts, *rest):
        if "Catch" in str(parts[0].out):
            raise RunError("no room <here>")
        return train_parts(parts, *rest)

    monkeypatch.setattr(collection, "train_parts", fails)
    found = counted(tmp_path / "out")
    assert found.failed == {"Catch/none": "no room <here>", "Catch/direct": "no room <here>"}
    assert list(found.tasks) == ["CartPole"]
    assert "Catch/none failed: no room &lt;here&gt;" in (tmp_path / "out/report.html").read_text()


def test_progress_says_what_is_done_and_left(tmp_path: Path) -> None:
    watch = Watch()
    counted(tmp_path / "out", progress=watch)
    said = [text for text in watch.said if text.startswith("program")]
    assert said[0] == "program 1 of 2: gymnax/Catch-bsuite, none, direct: 4 row(s)"
    assert said[1].startswith("program 2 of 2, about 1 min left: gymnax/CartPole-v1")


# Sizes, mistakes


def test_what_a_study_does_not_know_is_refused(tmp_path: Path, capsys) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("all of it")
    for words, message in (
        (["smoke", "--out", str(other)], "holds no study.json"),
        (["smoke", "--arms", "nine", "--out", str(tmp_path / "out")], "did you mean 'none'"),
        (["smok"], "no study 'smok'"),
    ):
        assert main(["study", *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert [path.name for path in other.iterdir()] == ["thesis.tex"]


# Tabular studies, games


def test_a_tabular_study_is_judged_by_medians(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (Path(study.__file__).parents[2] / "configs/studies/fig2a.yaml").read_text()
    tasks = "tabular: {tasks: [evaluation, control]"
    path.write_text(text.replace(tasks, f"{tasks}, words: iterations=200 states=5"))
    loaded = load_study(str(path), seeds=5)
    found = study.run(loaded, tmp_path / "out")
    assert set(found.scores) == {f"{task} {model}" for task in ("evaluation", "control") for model in ("mle", "ve")}
    assert len(found.scores["control ve"]["direct"]["final"]) == 5
    assert "data:image/png;base64," in (tmp_path / "out/report.html").read_text()
    before = (tmp_path / "out/tabular/curves.csv").stat().st_mtime_ns
    study.run(loaded, tmp_path / "out")
    assert (tmp_path / "out/tabular/curves.csv").stat().st_mtime_ns == before


def test_games_are_played_once_and_by_every_search(smoke: Path, tmp_path: Path, monkeypatch) -> None:
    played = []

    def against_engine(names, engine, options, say):
        played.append(names[0].rpartition(":")[2])
        return {"seeds": [{"seed": 0, "wins": 3, "counted": 4}, {"seed": 1, "wins": 0, "counted": 0}]}, {}

    monkeypatch.setattr(games.matches, "against_engine", against_engine)
    out = shutil.copytree(smoke, tmp_path / "out")
    loaded = with_games(load_study("smoke", envs=["Catch"]))
    found = study.run(loaded, out)
    assert played == ["0", "32"] * 2
    assert found.scores["Catch"]["direct"]["win_32"] == {0: 0.75}  # a seed that finished no game has no score
    study.run(loaded, out)
    assert len(played) == 4


def with_games(loaded: Study) -> Study:
    return loaded._replace(file=loaded.file.model_copy(update={"games": study.games.GamesFile(engine="gnugo")}))


# The page


class Outside(HTMLParser):
    """Everything that a page would have to fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value and not value.startswith(("data:", "#")):
                self.found.append(value)
        if tag in ("script", "link", "iframe"):
            self.found.append(tag)


def test_the_page_is_one_file(smoke: Path) -> None:
    page = (smoke / "report.html").read_text()
    outside = Outside()
    outside.feed(page)
    assert outside.found == []
    for word in (
        "SC-Direct",
        "direct.auc &gt; none.auc",
        "sc.update=direct",
        "Again: <code>purejax-sc",
        "of it compiling",
    ):
        assert word in page


@pytest.fixture
def browser() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    return path


def rendered(browser: str, page: Path, width: int, tmp_path: Path) -> str:
    """What a page is after a browser has laid it out, with a note of how wide it became."""
    probe = tmp_path / f"{width}.html"
    script = "<script>document.title = document.documentElement.scrollWidth + ' ' + innerWidth</script></body>"
    probe.write_text(page.read_text().replace("</body>", script))
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    words += ["--disable-component-update", f"--user-data-dir={tmp_path}/profile", f"--window-size={width},900"]
    result = subprocess.run(
        [browser, *words, "--dump-dom", probe.as_uri()], capture_output=True, text=True, timeout=120
    )
    return result.stdout


def test_a_browser_shows_the_page_on_a_desk_and_on_a_telephone(smoke: Path, tmp_path: Path, browser: str) -> None:
    for width in (1280, 500):  # the narrowest window that Chromium opens
        page = rendered(browser, smoke / "report.html", width, tmp_path)
        wide, inner = map(int, page.partition("<title>")[2].partition("</title>")[0].split())
        assert wide <= inner, f"the page is {wide} wide in a window of {inner}"
        assert page.count("<svg") == 1
        assert "undecided" in page


# Clusters


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A Dask scheduler with two workers, processes of their own."""
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'purejax-sc[cluster]'")
    file = tmp_path / "scheduler.json"
    begin = [["dask_scheduler", "--host", "127.0.0.1", "--port", "0"]]
    begin += [["dask_worker", "--nthreads", "1", "--no-nanny"]] * 2
    started = []
    for number, (name, *words) in enumerate(begin):
        command = [sys.executable, "-X", "faulthandler", "-m", f"distributed.cli.{name}", *words]
        command += ["--no-dashboard", "--scheduler-file", str(file)]
        with (tmp_path / f"dask{number}.txt").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path))
    try:
        wait_until(file.exists, 60)
        yield json.loads(file.read_text())["address"], started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_until(true, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_cluster_that_loses_a_worker_loses_nothing(smoke: Path, tmp_path: Path, workers) -> None:
    address, processes = workers
    out = tmp_path / "out"
    command = [sys.executable, "-m", "purejax_sc", "study", "smoke", "--out", str(out), "--cluster", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        try:
            wait_until(lambda: running.poll() is not None or any(out.glob("runs/*/*/*/metrics.csv")), 300)
            processes[0].kill()
            said = running.communicate(timeout=300)[1]
        except subprocess.TimeoutExpired:
            processes[1].send_signal(signal.SIGABRT)  # it tells where its threads are
            processes[1].wait()
            pytest.fail("\n".join(path.read_text() for path in sorted(tmp_path.glob("dask*.txt"))))
        finally:
            running.kill()
    assert running.returncode == 0, said
    for run in (smoke / "runs").glob("*/*/0-1"):
        assert len(table(run)) == len(table(out / run.relative_to(smoke)))
    assert (out / "claims.csv").read_bytes() == (smoke / "claims.csv").read_bytes()


def test_a_task_that_is_given_out_again_after_its_end_is_not_done_again(smoke: Path) -> None:
    arms = [Arm(f"Catch/{name}", config) for name, config in load_study("smoke").configs["Catch"].items()]
    parts = [Part(arm.config, [0, 1], smoke / "runs" / arm.name / "0-1") for arm in arms]
    summaries = [part.out / "summary.json" for part in parts]
    before = [path.stat().st_mtime_ns for path in summaries]
    cluster.work(cluster.as_tree(Task(parts, smoke / "programs/1")))
    assert [path.stat().st_mtime_ns for path in summaries] == before


def test_a_task_that_fails_on_a_worker_says_why(tmp_path: Path) -> None:
    config = load_study("smoke").configs["Catch"]["none"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run/note.txt").write_text("not a run")
    with pytest.raises(RunError, match="not a run directory"):
        cluster.work(cluster.as_tree(Task([Part(config, [0], tmp_path / "run")], tmp_path / "run")))


def test_no_cluster_is_said_in_a_line(tmp_path: Path, capsys) -> None:
    words = ["study", "smoke", "--quiet", "--out", str(tmp_path / "out"), "--cluster", "tcp://127.0.0.1:1"]
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


# Kills


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_ten_kills_at_random_change_no_number(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    text = (Path(study.__file__).parents[2] / "configs/studies/smoke.yaml").read_text()
    own.write_text(text.replace(": smoke", ": smoke checkpoint.updates=4 train.env_steps=32_768 train.log_points=64"))
    command = [sys.executable, "-m", "purejax_sc", "study", str(own), "--quiet", "--out"]
    begin = time.monotonic()
    subprocess.run([*command, str(tmp_path / "whole")], check=True)
    seconds, rng = time.monotonic() - begin, random.Random(0)
    for _ in range(10):
        with subprocess.Popen([*command, str(tmp_path / "parts")], start_new_session=True) as running:
            try:
                running.wait(rng.uniform(0.05, 0.35) * seconds)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
    subprocess.run([*command, str(tmp_path / "parts")], check=True)
    for run in (tmp_path / "whole/runs").glob("*/*/0-1"):
        assert table(run) == table(tmp_path / "parts" / run.relative_to(tmp_path / "whole"))
    for name in ("scores.csv", "claims.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_an_address_without_dask_names_the_extra(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'purejax-sc\[cluster\]'"):
        study.run(load_study("smoke"), tmp_path / "out", address="tcp://127.0.0.1:1")
