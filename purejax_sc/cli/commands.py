"""The command line. Every mistake of a user ends in one line on stderr and exit status 2, without a traceback.

Libraries are imported inside the commands that need them, so that `--help` is quick.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from purejax_sc import __version__

HEARTBEAT_SECONDS = 30  # after which a silent process counts as lost


class UserError(click.ClickException):
    exit_code = 2


class Interrupted(click.ClickException):
    exit_code = 130  # what shells expect after Ctrl-C


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.pass_context
def cli(context: click.Context) -> None:
    """Self-consistent models and values, with a Muesli agent, in pure JAX."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


# --help is an ordinary option of `train`: after a CONFIG it also shows the values in force.
@cli.command(add_help_option=False)
@click.argument("config", required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Seeds, from `seed` upwards.")
@click.option("--out", type=click.Path(path_type=Path), help="Run directory.  [default: runs/<name of CONFIG>]")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint of the run directory, if there is one.")
@click.option("--force", is_flag=True, help="Replace the run directory if it exists.")
@click.option(
    "--placement",
    type=click.Choice(["auto", "vmap", "map"]),
    default="auto",
    show_default=True,
    help="Train seeds at once (vmap, for accelerators) or one after the other (map, for CPUs), in one program.",
)
@click.option("--coordinator", metavar="HOST:PORT", help="Train in several processes: where the first one listens.")
@click.option("--num-processes", type=click.IntRange(min=1), help="How many there are; none under SLURM and the like.")
@click.option("--process-id", type=click.IntRange(min=0), help="Which one this is, from 0.")
@click.option("--print-config", is_flag=True, help="Print the complete configuration and exit.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-h", "--help", "help_", is_flag=True, help="Show this message, and the values in force for CONFIG.")
@click.pass_context
def train(
    context: click.Context,
    config: str | None,
    overrides: tuple[str, ...],
    seeds: int,
    out: Path | None,
    resume: bool,
    force: bool,
    placement: Any,
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    print_config: bool,
    quiet: bool,
    help_: bool,
) -> None:
    """Train the agent of CONFIG: a YAML file, or the name of a shipped configuration such as catch.

    KEY=VALUE changes single values, as in hyper.sc_weight=0.5 sc.update=dyna.
    """
    if help_:
        click.echo(context.get_help())
    if config is None:
        if help_:
            return
        raise click.UsageError("missing CONFIG: give a YAML file, or the name of a shipped configuration such as catch")
    from purejax_sc import config as configs

    with _one_line(configs.ConfigError):
        loaded = configs.load(config, overrides)
    if help_ or print_config:
        heading = f"\nValues in force for {config}:\n\n" if help_ else ""
        click.echo(heading + configs.to_yaml(loaded), nl=False)
        return
    directory = out or Path("runs") / Path(config).stem
    if resume and force:
        raise UserError("--resume goes on with a run and --force replaces it: give one of them")
    _join_processes(coordinator, num_processes, process_id)
    _train(loaded, directory, seeds, None if placement == "auto" else placement, force, quiet, resume)


@cli.command()
@click.argument("config")
@click.argument("settings", nargs=-1, metavar="[KEY=A,B,...]...")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Seeds of each setting.")
@click.option("--out", type=click.Path(path_type=Path), help="New directory.  [default: runs/sweep_<name of CONFIG>]")
@click.option(
    "--placement",
    type=click.Choice(["auto", "vmap", "map"]),
    default="auto",
    show_default=True,
    help="Train the rows of a device at once (vmap, for accelerators) or one after the other (map, for CPUs).",
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def sweep(config: str, settings: tuple[str, ...], seeds: int, out: Path | None, placement: Any, quiet: bool) -> None:
    """Train CONFIG with every combination of settings, times seeds; one table and one picture.

    All combinations of hyper.* are one compiled program, as in hyper.learning_rate=1e-4,3e-4,1e-3
    hyper.sc_weight=0,0.25. Each combination of other settings is one more: sc.update=none,direct,dyna.
    """
    _keep_compiled_programs()
    _use_all_cores()
    from purejax_sc.config import ConfigError
    from purejax_sc.results.files import RunError
    from purejax_sc.runs import sweep as sweeps

    directory = out or Path("runs") / f"sweep_{Path(config).stem}"
    command = shlex.join(["purejax-sc", *sys.argv[1:]])
    stopped = f"stopped: the programs that were done stay in {directory}"
    try:
        with _one_line(ConfigError, RunError, OSError):
            chosen = None if placement == "auto" else placement
            report = sweeps.sweep(config, settings, directory, seeds, chosen, quiet, command, _at_once(stopped))
    except KeyboardInterrupt:
        raise Interrupted(stopped) from None
    if not quiet:
        _print_settings(report["settings"])
        click.echo(f"wrote {directory}")


@cli.command()
@click.argument("config", default="atari")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--games", help="Names with commas between them, such as Pong,Breakout.  [default: all 57]")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of all games.  [default: runs/atari57_CONFIG]")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def atari57(config: str, overrides: tuple[str, ...], games: str | None, out: Path | None, quiet: bool) -> None:
    """Train CONFIG on many Atari games, one after the other, and score them against humans.

    Games that are done are left alone and those that were stopped go on, so that the same command resumes.
    """
    _keep_compiled_programs()
    from purejax_sc import config as configs
    from purejax_sc.envs.atari_games import SCORES
    from purejax_sc.results.files import RunError
    from purejax_sc.studies import atari57 as study

    directory = out or Path("runs") / f"atari57_{Path(config).stem}"
    chosen = tuple(SCORES) if games is None else tuple(dict.fromkeys(games.split(",")))
    say = (lambda text: None) if quiet else lambda text: click.echo(text, err=True)
    command = shlex.join(["purejax-sc", *sys.argv[1:]])
    stopped = f"stopped: the same command goes on from {directory}"
    try:
        with _one_line(configs.ConfigError, RunError, OSError):
            loaded = configs.load(config, overrides)
            report = study.run(loaded, chosen, directory, quiet, say, command, _at_once(stopped))
    except KeyboardInterrupt:
        raise Interrupted(stopped) from None
    if not quiet:
        if report["aggregate"]:
            values = ", ".join(f"{name} {value:.4g}" for name, value in report["aggregate"].items())
            click.echo(f"human-normalised: {values}")
        click.echo(f"wrote {directory}/atari57.csv, .json and .png")


@cli.command()
@click.argument("task", type=click.Choice(["evaluation", "control", "noise", "all"]))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--seeds", type=click.IntRange(min=1), default=30, show_default=True, help="MDPs, from `seed` upwards.")
@click.option("--out", type=click.Path(path_type=Path), help="New directory.  [default: runs/tabular_<TASK>]")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def tabular(task: Any, overrides: tuple[str, ...], seeds: int, out: Path | None, quiet: bool) -> None:
    """Run the paper's tabular study: all methods on random MDPs, with curves, paired scores and figures.

    KEY=VALUE changes an option, as in alpha_td=0.1 or ve_target=action. A comma list sweeps it, as in
    alpha_sc=0.1,0.3,1,3,10; updates= and models= choose methods.
    """
    _keep_compiled_programs()
    _use_all_cores()
    from purejax_sc.config import ConfigError
    from purejax_sc.results.files import RunError
    from purejax_sc.tabular import study

    directory = out or Path("runs") / f"tabular_{task}"
    tasks: Any = study.TASKS if task == "all" else (task,)
    say = (lambda text: None) if quiet else lambda text: click.echo(text, err=True)
    with _one_line(ConfigError, RunError, OSError):
        summary = study.run(tasks, overrides, directory, seeds, say, shlex.join(["purejax-sc", *sys.argv[1:]]))
    if not quiet:
        _print_methods(summary["methods"])
        click.echo(f"wrote {directory}")


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--episodes", type=click.IntRange(min=1), default=32, show_default=True, help="Episodes of each seed.")
@click.option(
    "--simulations",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Also act by search over the learned model, with so many simulations per action.",
)
@click.option("--search", type=click.Choice(["muzero", "gumbel"]), help="Which search.  [default: muzero]")
@click.option(
    "--temperature", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Of samples."
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    default=27_000,
    show_default=True,
    help="Cut longer episodes; how many were is reported.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Of the evaluation.")
@click.option("--render", type=click.Path(path_type=Path), help="Draw an episode of the first seed: .gif or .png.")
def evaluate(
    directory: Path,
    overrides: tuple[str, ...],
    episodes: int,
    simulations: int,
    search: Any,
    temperature: float,
    max_steps: int,
    seed: int,
    render: Path | None,
) -> None:
    """Play whole episodes with the agents of the run directory DIR, and write DIR/evaluation.json.

    They act greedily, by sampling their policy and, with --simulations, by search. Games of two are played against
    random moves. KEY=VALUE changes the environment,
    as in levels.depth=20 (Sokoban; generated levels are held out). Whether an environment can be drawn depends on its
    observations: grids (MinAtar, Catch, DeepSea, Pong, Sokoban), board games and CartPole can.
    """
    _check_search(search, simulations)
    _keep_compiled_programs()
    import jax

    from purejax_sc.config import ConfigError
    from purejax_sc.evaluation import evaluate as evaluation
    from purejax_sc.results.files import RunError

    options = evaluation.Options(episodes, max_steps, simulations, search or "muzero", temperature, seed)
    command = shlex.join(["purejax-sc", *sys.argv[1:]])
    try:
        with _one_line(ConfigError, RunError, OSError):
            say = partial(click.echo, err=True)
            report = evaluation.run(directory, options, render, say, command, overrides)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise UserError("out of memory: lower --episodes or --simulations") from None
    _print_evaluation(report)
    for path in (directory / evaluation.FILE, *([render] if render else [])):
        click.echo(f"wrote {path}")


@cli.command()
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--num", type=click.IntRange(min=1), default=1_000, show_default=True, help="How many levels.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="New file: .npy or .txt.")
@click.option("--difficulty", type=int, help="Actions of reverse play at most, as depth=.  [default: 300]")
@click.option("--split", type=click.Choice(["train", "test"]), default="train", help="Of all rooms.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Of the generator.")
@click.option("--render", type=click.Path(path_type=Path), help="Draw the first 20 levels: .png.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def levels(
    overrides: tuple[str, ...],
    num: int,
    out: Path,
    difficulty: int | None,
    split: Any,
    seed: int,
    render: Path | None,
    quiet: bool,
) -> None:
    """Generate Sokoban levels, see that their solutions solve them, and write them to a file.

    KEY=VALUE changes a constant of the generator, as in positions=100_000 or turn=0.5; file=levels.txt converts a file
    instead. Training reads a file with levels.file=FILE.
    """
    _keep_compiled_programs()
    from purejax_sc.config import ConfigError, load
    from purejax_sc.evaluation import levels
    from purejax_sc.results.files import RunError

    words = [f"split={split}", *([] if difficulty is None else [f"depth={difficulty}"]), *overrides]
    say = (lambda text: None) if quiet else lambda text: click.echo(text, err=True)
    with _one_line(ConfigError, RunError, OSError):
        config = load("sokoban", [f"levels.{word}" for word in words]).levels
        facts = levels.write(config, num, seed, out, render, say)
    if not quiet:
        _print_table([(name, f"{value:,.4g}") for name, value in facts.items()])
        click.echo(f"wrote {' and '.join(str(path) for path in (out, render) if path)}")


@cli.command()
@click.argument("entrants", nargs=-1, required=True, metavar="DIR...")
@click.option("--opponent", metavar="COMMAND", help='Engine that speaks GTP, as in "gnugo --mode gtp".')
@click.option("--games", type=click.IntRange(min=1), default=100, show_default=True, help="Of a pair, or a seed.")
@click.option(
    "--simulations", type=click.IntRange(min=0), default=0, show_default=True, help="Search before each move."
)
@click.option("--search", type=click.Choice(["muzero", "gumbel"]), help="Which search.  [default: muzero]")
@click.option("--sampled", is_flag=True, help="Draw moves from the policy instead of playing the best.")
@click.option("--openings", type=click.IntRange(min=0), default=2, show_default=True, help="Random moves at the start.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Of an engine, in s.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Of the openings.")
@click.option("--out", type=click.Path(path_type=Path), help="New directory.  [default: runs/match_<name of DIR>]")
def match(
    entrants: tuple[str, ...],
    opponent: str | None,
    games: int,
    simulations: int,
    search: Any,
    sampled: bool,
    openings: int,
    timeout: float,
    seed: int,
    out: Path | None,
) -> None:
    """Let the agents of run directories play each other, or a Go engine, and write a table and the games.

    DIR may be `random`: uniformly random moves. Several play a round robin, which gives Elo ratings. Against an engine
    every seed plays, and has each colour in half of the games:

    purejax-sc match runs/go_5x5 --opponent "gnugo --mode gtp --level 1 --chinese-rules --positional-superko"
    """
    _check_search(search, simulations)
    if simulations and sampled:
        raise click.UsageError("--sampled draws moves from the policy, --simulations searches: give one of them")
    _keep_compiled_programs()
    from purejax_sc.config import ConfigError
    from purejax_sc.evaluation import matches
    from purejax_sc.results.files import RunError

    directory = out or Path("runs") / f"match_{Path(entrants[0]).name}"
    options = matches.Options(games, simulations, search or "muzero", sampled, openings, seed, timeout)
    command = shlex.join(["purejax-sc", *sys.argv[1:]])
    with _one_line(ConfigError, RunError, OSError):
        say = partial(click.echo, err=True)
        report = matches.run(entrants, opponent, options, directory, say, command)
    _print_match(report)
    click.echo(f"wrote {directory}")


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--simulations", type=click.IntRange(min=0), default=0, show_default=True, help="Search before each move."
)
@click.option("--search", type=click.Choice(["muzero", "gumbel"]), help="Which search.  [default: muzero]")
@click.option("--agent", type=click.IntRange(min=0), help="Seed of the run whose agent plays.  [default: the first]")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Of the search.")
def gtp(directory: Path, simulations: int, search: Any, agent: int | None, seed: int) -> None:
    """Be a Go engine: play with an agent of the run directory DIR in any program that speaks the Go Text Protocol."""
    _check_search(search, simulations)
    _keep_compiled_programs()
    from purejax_sc.config import ConfigError
    from purejax_sc.evaluation import gtp as protocol
    from purejax_sc.evaluation import matches
    from purejax_sc.results.files import RunError

    options = matches.Options(simulations=simulations, search=search or "muzero", seed=seed)
    with _one_line(ConfigError, RunError, OSError):
        session = matches.open_session(directory, options, agent, partial(click.echo, err=True))
    protocol.serve(session, sys.stdin, click.echo, f"purejax_sc {directory.resolve().name}", __version__)


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="[LABEL=]DIR...")
@click.option(
    "--aggregate",
    type=click.Choice(["mean", "iqm"]),
    default="mean",
    show_default=True,
    help="Mean or interquartile mean over seeds, for the curves.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="compare.png",
    show_default=True,
    help="Image to write; the table goes beside it, with the suffix .csv.",
)
def plot(runs: tuple[str, ...], aggregate: str, out: Path) -> None:
    """Draw run directories side by side, with 90% stratified bootstrap intervals over seeds, and print their scores.

    A run is called by its LABEL, or else by the name of its directory; each environment gets a panel. Runs of one label
    on different environments are one method, and methods found on every environment also get scores over all of them;
    directories of one label on one environment are taken together, each with seeds of its own:

    purejax-sc plot none=runs/a none=runs/b direct=runs/c direct=runs/d

    AUC is normalised as in the paper: on each environment the lowest recorded return is 0 and the best run's AUC is 1.
    P(> X) is the probability that a seed ends with a higher return than a seed of X, the first run.
    """
    from purejax_sc.results import compare
    from purejax_sc.results.files import RunError

    with _one_line(RunError, OSError):
        comparison = compare.plot(runs, out, aggregate)
    _print_comparison(comparison.rows)
    for note in compare.notes(comparison):
        click.echo(note)
    click.echo(f"wrote {out} and {compare.table_path(out)}")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        cli.main(args, prog_name="purejax-sc", standalone_mode=False)
    except click.Abort:
        return _fail("stopped", Interrupted.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    return 0


def _train(config: Any, out: Path, seeds: int, placement: Any, force: bool, quiet: bool, resume: bool) -> None:
    _keep_compiled_programs()
    if seeds > 1 or config.train.data_shards > 1:
        _use_all_cores()
    import jax

    from purejax_sc.config import ConfigError
    from purejax_sc.results.files import RunError
    from purejax_sc.runs import train

    command = shlex.join(["purejax-sc", *sys.argv[1:]])
    stopped = f"stopped: what was written stays in {out}; --resume goes on from there"
    try:
        with _one_line(ConfigError, RunError, OSError):
            summary = train.train(config, out, seeds, placement, force, quiet, command, resume, _at_once(stopped))
    except KeyboardInterrupt:
        raise Interrupted(stopped) from None
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise UserError("out of memory: lower --seeds, replay.capacity or train.batch_sequences") from None
        if jax.process_count() > 1:
            _fail(
                f"lost another process of this run: start them all again with --resume --out {out}", UserError.exit_code
            )
            os._exit(UserError.exit_code)  # an orderly exit would wait for the lost one
        raise
    if not quiet and jax.process_index() == 0:
        _print_summary(summary, out)


def _at_once(message: str) -> Any:
    """While XLA compiles, Ctrl-C need not wait: the process leaves with the message that it would have had."""
    from purejax_sc.cli import ctrl_c

    return partial(ctrl_c.leave_at_once, _line(message), Interrupted.exit_code)


def _check_search(search: str | None, simulations: int) -> None:
    if search and not simulations:
        raise click.UsageError(f"--search {search} needs --simulations: add --simulations 50, or leave --search out")


def _join_processes(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Join the other processes of the run: the given ones, or those of a cluster that JAX detects, if any."""
    import jax

    given = (coordinator, num_processes, process_id)
    if any(value is not None for value in given) and None in given:
        raise UserError("--coordinator, --num-processes and --process-id go together: give all three or none")
    if process_id is not None and num_processes is not None and process_id >= num_processes:
        raise UserError(f"--process-id {process_id} is not below --num-processes {num_processes}: count from 0")
    try:
        jax.distributed.initialize(*given, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    except ValueError as error:
        if coordinator is not None:
            raise UserError(f"--coordinator {coordinator}: {error}") from None
        # no cluster was detected: this is the only process
    except RuntimeError as error:
        if coordinator is None and "before any JAX calls" in str(error):
            return  # called from Python, by a process that computes already: it is alone or has joined
        raise UserError(f"cannot join the other processes: {error}") from None


def _keep_compiled_programs() -> None:
    """Keep compiled programs between runs, in the user's cache directory unless JAX is told another."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "purejax_sc"))


def _use_all_cores() -> None:
    """One JAX device per CPU core, unless JAX was told a number: what runs side by side need not wait."""
    import jax

    if jax.config.values["jax_num_cpu_devices"] < 0:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def _print_methods(methods: Sequence[dict[str, Any]]) -> None:
    """One line per method: its first metric at the end, with the paired difference from Dyna."""
    rows = [
        ("task", "model", "update", "setting", "metric", "final", "90%", "median", "less Dyna", "90%", "wins", "lost")
    ]
    for method in methods:
        metric, score = next(iter(method["metrics"].items()))
        duel = method["against"].get("dyna", {metric: None})[metric]
        difference = duel["final"]["difference"] if duel else {"mean": None, "interval": None}
        rows.append(
            (
                *(method[key] for key in ("task", "model", "update", "setting")),
                metric,
                _number(score["final"]["mean"]),
                _interval(score["final"]["interval"]),
                _number(score["final"]["median"]),
                _number(difference["mean"]),
                _interval(difference["interval"]),
                f"{duel['final']['wins']}/{duel['final']['of']}" if duel else "",
                str(method["diverged"]),
            )
        )
    _print_table(rows)


def _print_comparison(rows: Sequence[Any]) -> None:
    """One line per method and environment, and one per method over all environments, in normalised returns."""
    against = {row.against for row in rows if row.against}
    better = f"P(> {against.pop() if len(against) == 1 else 'first'})"
    names = ("final return", "IQM", "normalised AUC", better)
    table = [("environment", "run", "seeds", *(cell for name in names for cell in (name, "90%")))]
    for row in rows:
        estimates = (row.mean, row.iqm, row.normalised_auc, row.improvement)
        cells = (cell for number, interval in estimates for cell in (_number(number), _interval(interval)))
        table.append((row.environment, row.method, str(row.seeds), *cells))
    one_environment = len({row.environment for row in rows}) == 1
    _print_table([line[1:] for line in table] if one_environment else table)


def _print_evaluation(report: dict[str, Any]) -> None:
    """The seeds one by one, then one line per way to act."""
    policies = report["policies"]
    rows = [("seed", *(cell for name in policies for cell in (name, "steps")))]
    for i, seed in enumerate(report["seeds"]):
        scores = (policy["per_seed"] for policy in policies.values())
        numbers = (_number(score[key][i]) for score in scores for key in ("return", "length"))
        rows.append((str(seed), *numbers))
    _print_table(rows)
    total = len(report["seeds"]) * report["episodes"]
    metrics = list(next(iter(policies.values()))["metrics"])
    extra = (cell for name in metrics for cell in (name, "90% interval"))
    rows = [("", "mean return", "90% interval", "IQM", "90% interval", "steps", "cut", *extra)]
    for name, policy in policies.items():
        scores = policy["return"]
        mean, iqm = ((_number(scores[key]), _interval(scores[f"{key}_interval"])) for key in ("mean", "iqm"))
        own = (policy["metrics"][metric] for metric in metrics)
        extra = (cell for x in own for cell in (_number(x["mean"]), _interval(x["mean_interval"])))
        rows.append((name, *mean, *iqm, _number(policy["length"]), f"{policy['cut']} of {total}", *extra))
    click.echo()
    _print_table(rows)
    many = len(report["seeds"]) > 1
    spread = f"the {len(report['seeds'])} seeds" if many else f"the {report['episodes']} episode(s) of the only seed"
    click.echo(f"intervals and IQM are over {spread}; cut: not over after {report['max_steps']} steps")


def _print_match(report: dict[str, Any]) -> None:
    """A round robin: pairs, then ratings. Against an engine: one line per seed, then one per run."""
    if "pairs" in report:
        pairs: list[tuple[str, ...]] = [("first", "second", "wins", "draws", "losses", "score", "90% interval")]
        for pair in report["pairs"]:
            counts = (str(pair[key]) for key in ("first", "second", "wins", "draws", "losses"))
            pairs.append((*counts, _number(pair["score"]), _interval(pair["interval"])))
        _print_table(pairs)
        click.echo()
        ratings = ((row["name"], f"{row['elo']:.0f}", _interval(row["interval"])) for row in report["elo"])
        _print_table([("", "Elo", "90% interval"), *ratings])
        return
    rows: list[tuple[str, ...]] = [
        ("run", "seed", "wins", "as Black", "as White", "not counted", "other score", "games ended by")
    ]
    for row in report["seeds"]:
        sides = (f"{row[side]['wins']} of {row[side]['games']}" for side in ("as_black", "as_white"))
        ended = ", ".join(f"{reason} {count}" for reason, count in row["ended"].items())
        void, differ = str(row["games"] - row["counted"]), str(len(row["scores_that_differ"]))
        rows.append((row["run"], str(row["seed"]), str(row["wins"]), *sides, void, differ, ended))
    _print_table(rows)
    click.echo()
    rates = ((row["run"], _number(row["win_rate"]), _interval(row["interval"])) for row in report["runs"])
    _print_table([(f"against {report['opponent']}", "win rate", "90% interval"), *rates])


def _print_settings(settings: Sequence[dict[str, Any]]) -> None:
    """One line per setting of a sweep."""
    swept = list(settings[0])[: list(settings[0]).index("final_return")]
    rows = [(*swept, "final return", "90% interval", "IQM", "AUC", "lost")]
    for setting in settings:
        numbers = (_number(setting["mean"]), _interval(setting["mean_interval"]), _number(setting["iqm"]))
        rows.append((*(setting[key] for key in swept), *numbers, _number(setting["auc"]), str(setting["lost"])))
    _print_table(rows)


def _print_summary(summary: dict[str, Any], out: Path) -> None:
    scores = summary["return"]
    rate = summary["env_steps_per_second"]
    _print_table(
        [
            ("final return", _number(scores["mean"]), _interval(scores["mean_interval"])),
            ("IQM", _number(scores["iqm"]), _interval(scores["iqm_interval"])),
            ("speed", f"{rate:,.0f} env steps/s", ""),
            ("compile, run", f"{summary['compile_seconds']:.1f} s, {summary['run_seconds']:.1f} s", ""),
            ("files", str(out), ""),
        ]
    )


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _interval(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.4g}, {interval[1]:.4g}]"


@contextmanager
def _one_line(*errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors as error:
        raise UserError(str(error)) from None


def _fail(message: str, status: int) -> int:
    click.echo(_line(message), err=True)
    return status


def _line(message: str) -> str:
    return f"purejax-sc: {' '.join(message.split())}"
