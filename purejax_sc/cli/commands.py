"""The command line. Every mistake of a user ends in one line on stderr and exit status 2, without a traceback.

A command is its options, and one call of what does the work. Libraries are imported inside the commands that need
them, so that `--help` is quick.
"""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from purejax_sc import __version__
from purejax_sc.cli import options, signals, tables
from purejax_sc.cli.setup import (
    Interrupted,
    UserError,
    at_once,
    command_line,
    fail,
    is_first_process,
    refusals,
    speaker,
    watcher,
    work,
)
from purejax_sc.cli.together import processes

MEMORY = "--seeds, replay.capacity or train.batch_sequences"  # what takes it in training
OF_TRAINING = ("out", "resume", "force", "coordinator", "num_processes", "process_id", "wait", "quiet")  # not of a plan


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
@options.seeds("Seeds, from `seed` upwards.")
@options.out("Run directory.  [default: runs/<name of CONFIG>]")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint of the run directory, if there is one.")
@click.option("--force", is_flag=True, help="Replace the run directory if it exists.")
@options.placement(
    "Train seeds at once (vmap, for accelerators) or one after the other (map, for CPUs), in one program."
)
@click.option("--coordinator", metavar="HOST:PORT", help="Train in several processes: where the first one listens.")
@click.option("--num-processes", type=options.Whole(min=1), help="How many there are; none under SLURM and the like.")
@click.option("--process-id", type=options.Whole(min=0), help="Which one this is, from 0.")
@click.option("--wait", type=options.Whole(min=1), help="Seconds until all of them must be there.  [default: 300]")
@click.option("--print-config", is_flag=True, help="Print the complete configuration, with meanings, and exit.")
@click.option("--plan", is_flag=True, help="Train nothing: tell the memory, the arithmetic and the least time needed.")
@click.option("--device", metavar="NAME", help="For which device --plan is, such as h100 or tpu-v5e.  [default: all]")
@options.quiet
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
    wait: int | None,
    print_config: bool,
    plan: bool,
    device: str | None,
    quiet: bool,
    help_: bool,
) -> None:
    """Train the agent of CONFIG: a YAML file, or the name of a shipped configuration such as catch.

    KEY=VALUE changes single values, as in hyper.sc_weight=0.5 sc.update=dyna.
    """
    if help_:
        click.echo(context.get_help())
        if config is None:
            return
    if config is None:
        raise click.UsageError("missing CONFIG: give a YAML file, or the name of a shipped configuration such as catch")
    from purejax_sc import config as configs

    with refusals():
        loaded = configs.load(config, overrides)
    if help_ or print_config:
        from purejax_sc.config.reference import explained

        heading = f"\nValues in force for {config}:\n\n" if help_ else ""
        click.echo(heading + explained(loaded), nl=False)
        return
    if plan:
        _refuse_given(OF_TRAINING, "with --plan, which trains nothing: leave one of them out")
        _plan(loaded, seeds, placement, device)
        return
    if device is not None:
        raise UserError("--device names a device to plan for: add --plan, or leave it out")
    if resume and force:
        raise UserError("--resume goes on with a run and --force replaces it: give one of them")
    directory = out or Path("runs") / Path(config).stem
    stays = f"what was written stays in {directory}; --resume goes on from there"
    progress = watcher(quiet)
    place = processes.find_place(coordinator, num_processes, process_id, wait)
    facts = processes.facts(
        configs.to_tree(loaded), seeds=seeds, out=directory.absolute(), resume=resume, force=force, placement=placement
    )
    cure = f"start them all again with --resume --out {directory}"
    with (
        processes.joined(place, facts, speaker(quiet), cure, progress.close) as farewell,
        work(MEMORY, stays, all_cores=seeds > 1 or loaded.train.data_shards > 1),
    ):
        from purejax_sc.runs import train as runs

        summary = runs.train(
            loaded, directory, seeds, placement, force, resume, progress, command_line(), at_once(stays, farewell)
        )
    if not quiet and is_first_process():
        tables.print_summary(summary, directory)


def _refuse_given(names: tuple[str, ...], why: str) -> None:
    """Refuse these options on the command line. why: they have no effect there, and what to do."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UserError(f"--{name.replace('_', '-')} has no effect {why}")


def _plan(config: Any, seeds: int, placement: Any, device: str | None) -> None:
    """Print what a run needs, and how fast it can be on a device or on each that is known."""
    with work(MEMORY):
        from purejax_sc.training import accelerators, plan

        devices = accelerators.find(device)
        speaker()("planning")
        with at_once("")():
            planned = plan.make_plan(config, seeds)
        estimates = [plan.on_device(planned, each, seeds, placement) for each in devices]
    tables.print_plan(planned, estimates, seeds)


@cli.command()
@click.argument("config")
@click.argument("settings", nargs=-1, metavar="[KEY=A,B,...]...")
@options.seeds("Seeds of each setting.")
@options.out("New directory.  [default: runs/sweep_<name of CONFIG>]")
@options.placement(
    "Train the rows of a device at once (vmap, for accelerators) or one after the other (map, for CPUs)."
)
@click.option("--resume", is_flag=True, help="Go on with the sweep in the directory, with more seeds or settings, too.")
@options.quiet
def sweep(
    config: str, settings: tuple[str, ...], seeds: int, out: Path | None, placement: Any, resume: bool, quiet: bool
) -> None:
    """Train CONFIG with every combination of settings, times seeds; one table and one picture.

    All combinations of hyper.* and sc.update are one compiled program, as in hyper.learning_rate=1e-4,3e-4,1e-3
    sc.update=none,direct,dyna. Each combination of other settings is one more: sc.unroll=3,5.
    """
    directory = out or Path("runs") / f"sweep_{Path(config).stem}"
    stays = f"what was done stays in {directory}; --resume goes on from there"
    with work(f"{MEMORY}, or give fewer values at once", stays, all_cores=True):
        from purejax_sc.runs import sweep as sweeps

        report = sweeps.sweep(
            config, settings, directory, seeds, placement, watcher(quiet), command_line(), at_once(stays), resume
        )
    if not quiet:
        tables.print_settings(report["settings"])
        click.echo(f"wrote {directory}")


@cli.command()
@click.argument("name", metavar="NAME|FILE")
@click.option("--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True, help="Of it all.")
@click.option("--seeds", type=options.Whole(min=1), help="Seeds of each arm.  [default: those of the study]")
@click.option("--envs", callback=options.names, help="Only these environments, with commas between them.")
@click.option("--arms", callback=options.names, help="Only these arms, with commas between them.")
@options.out("Directory, new or of this study.  [default: runs/study_NAME]")
@options.placement("Train rows at once (vmap, for accelerators) or one after the other (map, for CPUs).")
@click.option("--cluster", metavar="ADDRESS", help="Let the workers of this Dask scheduler train.")
@options.quiet
def study(
    name: str,
    size: Any,
    seeds: int | None,
    envs: list[str] | None,
    arms: list[str] | None,
    out: Path | None,
    placement: Any,
    cluster: str | None,
    quiet: bool,
) -> None:
    """Make a figure of the paper: train its arms, judge its claims, and write a page about it.

    Studies: fig2a, fig2b, fig3a, fig3b, fig3c, fig4a, fig4b, fig5, unroll, smoke; or a file of your own. What is done
    is never done again: the same command goes on, also with more seeds or arms.
    """
    suffix = "" if size == "laptop" else f"_{size}"
    directory = out or Path("runs") / f"study_{Path(name).stem}{suffix}"
    stays = f"what was done stays in {directory}; the same command goes on"
    with work(f"{MEMORY}, or give fewer --arms at once", stays, all_cores=True):
        from purejax_sc.studies import study as studies
        from purejax_sc.studies.study_file import load_study

        loaded = load_study(name, size, seeds, envs, arms)
        found = studies.run(loaded, directory, placement, watcher(quiet), command_line(), at_once(stays), cluster)
    if not quiet:
        tables.print_verdicts(found.verdicts)
        click.echo(f"wrote {directory / 'report.html'}")
    for run, reason in found.failed.items():
        raise UserError(f"{len(found.failed)} arm(s) failed, {run} first: {reason}")


@cli.command()
@click.argument("config", default="atari")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--games", help="Names with commas between them, such as Pong,Breakout.  [default: all 57]")
@options.out("Directory of all games.  [default: runs/atari57_CONFIG]")
@options.quiet
def atari57(config: str, overrides: tuple[str, ...], games: str | None, out: Path | None, quiet: bool) -> None:
    """Train CONFIG on many Atari games, one after the other, and score them against humans.

    Games that are done are left alone and those that were stopped go on, so that the same command resumes.
    """
    directory = out or Path("runs") / f"atari57_{Path(config).stem}"
    stays = f"the same command goes on from {directory}"
    with work("replay.capacity or train.batch_sequences", stays):
        from purejax_sc.config import load
        from purejax_sc.envs.atari_games import SCORES
        from purejax_sc.studies import atari57 as study

        chosen = tuple(SCORES) if games is None else tuple(dict.fromkeys(games.split(",")))
        loaded = load(config, overrides)
        report = study.run(loaded, chosen, directory, watcher(quiet), command_line(), at_once(stays))
    if not quiet:
        tables.print_aggregate(report["aggregate"])
        for path in study.written(directory):
            click.echo(f"wrote {path}")
    left = study.unfinished(directory, chosen)
    if left:
        raise UserError(
            f"{len(left)} of {len(chosen)} game(s) did not end well ({', '.join(left)}; see atari57.csv): {stays}"
        )


def _tabular_help(context: click.Context, option: click.Parameter, asked: bool) -> None:
    """Print the help of `tabular` and its keys, and end, if that is asked for."""
    if asked:
        from purejax_sc.config import reference

        click.echo(f"{context.get_help()}\n\nKeys:\n")
        tables.print_keys([key._replace(owner="") for key in reference.of_study()])
        context.exit()


@cli.command(add_help_option=False)
@click.argument("task", type=click.Choice(["evaluation", "control", "noise", "all"]))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@options.seeds("MDPs, from `seed` upwards.", default=30)
@options.out("New directory.  [default: runs/tabular_<TASK>]")
@options.quiet
@click.option(
    "-h",
    "--help",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tabular_help,
    help="Show this message, and what each KEY means.",
)
def tabular(task: Any, overrides: tuple[str, ...], seeds: int, out: Path | None, quiet: bool) -> None:
    """Run the paper's tabular study: all methods on random MDPs, with curves, paired scores and figures.

    KEY=VALUE changes an option, as in alpha_td=0.1 or ve_target=action. A comma list sweeps it, as in
    alpha_sc=0.1,0.3,1,3,10; updates= and models= choose methods.
    """
    directory = out or Path("runs") / f"tabular_{task}"
    with work("--seeds, or give fewer values at once", all_cores=True):
        from purejax_sc.tabular import study

        tasks: Any = study.TASKS if task == "all" else (task,)
        summary = study.run(tasks, overrides, directory, seeds, speaker(quiet), command_line())
    if not quiet:
        tables.print_methods(summary["methods"])
        click.echo(f"wrote {directory}")


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--episodes", type=options.Whole(min=1), default=32, show_default=True, help="Episodes of each seed.")
@options.search(
    "Also search over the learned model, with so many simulations per action, as in 32 or 8,32,128.",
    many=True,
    real=True,
)
@click.option(
    "--temperature", type=options.Number(0, min_open=True), default=1.0, show_default=True, help="Of samples."
)
@click.option(
    "--max-steps",
    type=options.Whole(min=1),
    default=27_000,
    show_default=True,
    help="Cut longer episodes; how many were is reported.",
)
@options.seed("Of the evaluation.")
@click.option(
    "--render", type=click.Path(path_type=Path), help="Draw an episode of the first seed: a new .gif or .png."
)
@click.option("--diagnose", is_flag=True, help="Also hold the model and its searches against real play.")
def evaluate(
    directory: Path,
    overrides: tuple[str, ...],
    episodes: int,
    temperature: float,
    max_steps: int,
    seed: int,
    render: Path | None,
    diagnose: bool,
    **search: Any,
) -> None:
    """Play whole episodes with the agents of the run directory DIR, and write DIR/evaluation.json.

    They act greedily, by sampling their policy and, with --simulations, by search. Games of two are played against
    random moves. KEY=VALUE changes the environment,
    as in levels.depth=20 (Sokoban; generated levels are held out). Whether an environment can be drawn depends on its
    observations: grids (MinAtar, Catch, DeepSea, Pong, Sokoban), board games and CartPole can.
    """
    with work("--episodes or --simulations"):
        chosen = tuple(x for x in options.chosen_searches(**search) if x.simulations)
        from purejax_sc.evaluation import diagnosis
        from purejax_sc.evaluation import evaluate as evaluation

        if diagnose:
            diagnosis.check(directory)
        how = evaluation.EvaluationOptions(episodes, max_steps, chosen, temperature, seed)
        report = evaluation.evaluate(directory, how, render, speaker(), command_line(), overrides)
    tables.print_evaluation(report)
    curve = [directory / evaluation.CURVE] if len(chosen) > 1 else []
    written = [directory / evaluation.FILE, *curve, *([render] if render else [])]
    if diagnose:
        with work("--diagnose on a run of fewer seeds"):
            how_far = diagnosis.DiagnosisOptions(searches=chosen, seed=seed)
            found = diagnosis.diagnose(directory, how_far, speaker(), command_line(), overrides)
        tables.print_diagnosis(found)
        written += [directory / diagnosis.FILE, directory / diagnosis.PICTURE]
    for path in written:
        click.echo(f"wrote {path}")


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--agent", type=options.Whole(min=0), help="Seed of the run whose agent it is.  [default: the first]")
@click.option("--episodes", type=options.Whole(min=1), default=8, show_default=True, help="For the table.")
@click.option("--max-steps", type=options.Whole(min=1), default=2_500, show_default=True, help="Cut longer episodes.")
@click.option("--depth", type=options.Whole(1, 50), help="Imagined steps.  [default: steps of the model in training]")
@click.option("--sampled", is_flag=True, help="Draw actions from the policy instead of taking the likeliest.")
@click.option("--taken", is_flag=True, help="Imagine the actions really taken, instead of the policy's own.")
@options.seed("Of the episodes and of the samples.")
@click.option(
    "--render", type=click.Path(path_type=Path), help="Draw the first episode: .png (a step) or .gif (a film)."
)
@click.option(
    "--step",
    type=options.Whole(min=0),
    help="The step to draw, or to begin the film with.  [default: the middle, or 0]",
)
def imagine(
    directory: Path,
    overrides: tuple[str, ...],
    agent: int | None,
    episodes: int,
    max_steps: int,
    depth: int | None,
    sampled: bool,
    taken: bool,
    seed: int,
    render: Path | None,
    step: int | None,
) -> None:
    """Show what an agent of the run directory DIR imagines, beside what really comes.

    At every step of whole episodes the policy is rolled out over the learned model: rewards and values of K imagined
    steps. They are held against the rewards then paid, the root values of the states then reached and the return-to-go,
    and against each other: the self-consistency error. KEY=VALUE changes the environment, as for evaluate.

    Nothing is written but the picture. In games of two the agent plays both sides.
    """
    if step is not None and render is None:
        raise click.UsageError("--step chooses what is drawn: add --render out.png or out.gif, or leave --step out")
    with work("--episodes or --max-steps"):
        from purejax_sc.evaluation import imagination
        from purejax_sc.evaluation import imagine as imagining

        how = imagination.ImaginationOptions(episodes, max_steps, depth, sampled, taken, seed)
        report = imagining.imagine(directory, how, agent, render, step, speaker(), overrides)
    tables.print_imagination(report, imagination.COLUMNS)
    if render:
        click.echo(f"wrote {render}")


@cli.command()
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--num", type=options.Whole(min=1), default=1_000, show_default=True, help="How many levels.")
@options.out("New file: .npy or .txt.", required=True)
@click.option("--difficulty", type=options.Whole(), help="Actions of reverse play at most, as depth=.  [default: 300]")
@click.option("--split", type=click.Choice(["train", "test"]), default="train", help="Of all rooms.")
@options.seed("Of the generator.")
@click.option("--render", type=click.Path(path_type=Path), help="Draw the first 20 levels: a new .png.")
@options.quiet
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

    KEY=VALUE changes a constant of the generator, as in positions=100_000; file=levels.txt converts a file
    instead. Training reads a file with levels.file=FILE.
    """
    words = [f"split={split}", *([] if difficulty is None else [f"depth={difficulty}"]), *overrides]
    with work("--num or positions="):
        from purejax_sc.config import load
        from purejax_sc.evaluation import levels

        config = load("sokoban", [f"levels.{word}" for word in words]).levels
        facts = levels.write(config, num, seed, out, render, speaker(quiet))
    if not quiet:
        tables.print_facts(facts)
        click.echo(f"wrote {' and '.join(str(path) for path in (out, render) if path)}")


@cli.command()
@click.argument("entrants", nargs=-1, required=True, metavar="DIR...")
@click.option("--opponent", metavar="COMMAND", help='Engine that speaks GTP, as in "gnugo --mode gtp".')
@click.option("--games", type=options.Whole(min=1), default=100, show_default=True, help="Of a pair, or a seed.")
@options.search("Search before each move.", real=True)
@click.option("--sampled", is_flag=True, help="Draw moves from the policy instead of playing the best.")
@click.option("--openings", type=options.Whole(min=0), default=2, show_default=True, help="Random moves at the start.")
@click.option("--timeout", type=options.Number(min=0.1), default=60.0, show_default=True, help="Of an engine, in s.")
@click.option(
    "--boards", type=options.Whole(min=1), default=16, show_default=True, help="Games with an engine at a time."
)
@click.option(
    "--handicap", type=options.Whole(min=0), default=0, show_default=True, help="Stones ahead of an engine, at random."
)
@options.seed("Of the openings.")
@options.out("New directory.  [default: runs/match_<name of DIR>]")
def match(
    entrants: tuple[str, ...],
    opponent: str | None,
    games: int,
    sampled: bool,
    openings: int,
    timeout: float,
    boards: int,
    handicap: int,
    seed: int,
    out: Path | None,
    **search: Any,
) -> None:
    """Let the agents of run directories play each other, or a Go engine, and write a table and the games.

    DIR may be `random`: uniformly random moves. DIR:32 searches with 32 simulations per move, DIR:32:gumbel by Gumbel
    search, and DIR:0 not at all: so a run can meet itself. Several play a round robin, which gives Elo ratings.
    Against an engine every seed plays, and has each colour in half of the games:

    purejax-sc match runs/go_5x5 --opponent "gnugo --mode gtp --level 1 --chinese-rules --positional-superko
    --play-out-aftermath --capture-all-dead"
    """
    if any(search["simulations"]) and sampled:
        raise click.UsageError("--sampled draws moves from the policy, --simulations searches: give one of them")
    if opponent is None:
        _refuse_given(("timeout", "boards", "handicap"), "without --opponent, an engine: leave it out, or name one")
    directory = out or Path("runs") / f"match_{Path(entrants[0]).name.replace(':', '_')}"
    with work("--games, --boards or --simulations"):
        [chosen] = options.chosen_searches(**search, needed=not any(":" in name for name in entrants))
        from purejax_sc.evaluation import matches

        how = matches.MatchOptions(games, chosen, sampled, openings, seed, timeout, boards=boards, handicap=handicap)
        report = matches.run(entrants, opponent, how, directory, speaker(), command_line())
    tables.print_match(report)
    click.echo(f"wrote {directory}")


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@options.search("Search before each move.")
@click.option("--agent", type=options.Whole(min=0), help="Seed of the run whose agent plays.  [default: the first]")
@click.option(
    "--resign",
    type=options.Number(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    help="Resign where the chance to win is lower.",
)
@options.seed("Of the search.")
def gtp(directory: Path, agent: int | None, resign: float, seed: int, **search: Any) -> None:
    """Be a Go engine: play with an agent of the run directory DIR in any program that speaks the Go Text Protocol.

    On a clock it searches with fewer simulations than asked for where time is short. `lz-analyze` tells what it thinks.
    """
    with work("--simulations"):
        [chosen] = options.chosen_searches(**search)
        from purejax_sc.evaluation import matches
        from purejax_sc.evaluation.gtp_server import serve_streams

        how = matches.MatchOptions(search=chosen, seed=seed, resign=resign)
        player = matches.open_player(directory, how, agent, speaker())
        name = f"purejax_sc {directory.resolve().name}"
        with open(sys.stdout.fileno(), "wb", 0, closefd=False) as stdout:
            serve_streams(player, sys.stdin.buffer, stdout, name, __version__)


@cli.command()
@click.argument("agent", metavar="NAME|DIR")
@options.search("Let the agent search before each move.")
@click.option("--second", is_flag=True, help="Let the agent move first.")
@click.option(
    "--agent", "run_seed", type=options.Whole(min=0), help="Seed of the run whose agent plays.  [default: the first]"
)
@options.seed("Of the search.")
def play(agent: str, second: bool, run_seed: int | None, seed: int, **search: Any) -> None:
    """Play a board game against an agent: one that is shipped, such as tic_tac_toe, or that of a directory.

    It tells what it thinks of its chances, and gives hints. DIR:32 searches with 32 simulations per move.
    """
    with work("--simulations"):
        [chosen] = options.chosen_searches(**search, needed=":" not in agent)
        from purejax_sc.evaluation import play as playing
        from purejax_sc.evaluation.matches import MatchOptions

        how = MatchOptions(search=chosen, seed=seed)
        game = playing.open_game(agent, how, run_seed, speaker())
        playing.converse(game, int(second), playing.from_terminal, click.echo)


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@options.out("New directory.", required=True)
@click.option("--agent", type=options.Whole(min=0), help="Seed of the run to keep.  [default: the first]")
def export(directory: Path, out: Path, agent: int | None) -> None:
    """Keep the agent of the run directory DIR in one small file, to give away or to put into a repository.

    The new directory can be evaluated and played with like the run. It cannot be trained further: only the parameters
    that act are kept, in half precision.
    """
    with work("what else runs on the machine"):
        from purejax_sc.evaluation.export import export as export_agent

        facts = export_agent(directory, out, agent, speaker())
    click.echo(f"wrote {out}: the agent of seed {facts['seed']}, {facts['bytes'] / 1024:,.0f} KiB")


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="[LABEL=]DIR...")
@click.option(
    "--aggregate",
    type=click.Choice(["mean", "iqm"]),
    default="mean",
    show_default=True,
    help="Mean or interquartile mean over seeds, for the curves.",
)
@click.option("--time", "over_time", is_flag=True, help="Draw the curves over minutes of training, too.")
@options.out(
    "Image to write; the table goes beside it, with the suffix .csv.", default="compare.png", show_default=True
)
@click.option("--force", is_flag=True, help="Replace the image and the table also if this command did not write them.")
def plot(runs: tuple[str, ...], aggregate: str, over_time: bool, out: Path, force: bool) -> None:
    """Draw run directories side by side, with 90% stratified bootstrap intervals over seeds, and print their scores.

    A run is called by its LABEL, or else by the name of its directory; each environment gets a panel. Runs of one label
    on different environments are one method, and methods found on every environment also get scores over all of them;
    directories of one label on one environment are taken together, each with seeds of its own:

    purejax-sc plot none=runs/a none=runs/b direct=runs/c direct=runs/d

    AUC is normalised as in the paper: on each environment the lowest recorded return is 0 and the best run's AUC is 1.
    P(> X) is the probability that a seed ends with a higher return than a seed of X, the first run.
    """
    with refusals():
        from purejax_sc.results import compare
        from purejax_sc.results.comparison_plot import plot, table_path

        comparison = plot(runs, out, aggregate, over_time, force)
    tables.print_comparison(comparison.rows)
    for note in compare.notes(comparison):
        click.echo(note)
    click.echo(f"wrote {out} and {table_path(out)}")


@cli.command()
@click.argument("pattern", default="")
@click.option("--markdown", is_flag=True, help="As the page docs/keys.md.")
def keys(pattern: str, markdown: bool) -> None:
    """Show the keys with PATTERN in their name or meaning: what they mean, and what they take.

    Keys are those of configurations, and of the command `tabular`. A key has a default and, where it has an effect
    there, the values of the configurations of the paper's size.
    """
    from purejax_sc.config import reference

    found = reference.matching(pattern)
    if not found:
        raise UserError(f"no key has {pattern!r} in its name or meaning: purejax-sc keys shows all")
    if markdown:
        click.echo(reference.to_markdown(found), nl=False)
    else:
        tables.print_keys(found)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        cli.main(args, prog_name="purejax-sc", standalone_mode=False)
    except click.Abort:
        return fail(signals.message(signal.SIGINT, ""), signals.status(signal.SIGINT))
    except Interrupted as ended:
        return fail(ended.format_message(), ended.status)
    except click.ClickException as error:
        return fail(error.format_message(), error.exit_code)
    return 0
