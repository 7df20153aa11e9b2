"""The command line. Every mistake of a user ends in one line on stderr and exit status 2, without a traceback.

A command is its options, and one call of what does the work. Libraries are imported inside the commands that need
them, so that `--help` is quick.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from purejax_sc import __version__
from purejax_sc.cli import options, tables
from purejax_sc.cli.setup import (
    Stopped,
    UserError,
    command_line,
    fail,
    is_first_process,
    refusals,
    speaker,
    training,
    work,
)
from purejax_sc.runs import interrupts

MEMORY = "--seeds, replay.capacity or train.batch_sequences"  # what takes it in training


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
@click.option("--coordinator", metavar="HOST:PORT", help="Train in several processes: where the first listens.")
@click.option("--num-processes", type=options.Whole(min=1), help="Number of processes; not with --coordinator auto.")
@click.option("--process-id", type=options.Whole(min=0), help="Which one this is, from 0.")
@click.option("--print-config", is_flag=True, help="Print the complete configuration, with meanings, and exit.")
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
    if coordinator is None and (num_processes, process_id) != (None, None):
        raise UserError("--num-processes and --process-id need --coordinator HOST:PORT: add it, or leave them out")
    if resume and force:
        raise UserError("--resume goes on with a run and --force replaces it: give one of them")
    directory = out or Path("runs") / Path(config).stem
    stays = f"what was written stays in {directory}; --resume goes on from there"
    with work(MEMORY, stays, all_cores=seeds > 1 or loaded.train.data_shards > 1):
        from purejax_sc.runs import fit
        from purejax_sc.training import distributed

        if coordinator is not None:
            agreed = {"config": loaded, "seeds": seeds, "placement": placement, "resume": resume, "force": force}
            distributed.join(coordinator, num_processes, process_id, agreed)
        with training(quiet, placement) as session:
            summary = fit.train(loaded, directory, seeds, force=force, resume=resume, **session._asdict())
    if not quiet and is_first_process():
        tables.print_summary(summary, directory)


def _refuse_given(names: tuple[str, ...], why: str) -> None:
    """Refuse these options on the command line. why: they have no effect there, and what to do."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UserError(f"--{name.replace('_', '-')} has no effect {why}")


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

        with training(quiet, placement) as session:
            report = sweeps.sweep(config, settings, directory, seeds, resume, session)
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

    Studies: fig2a, fig2b, fig3a, fig3b, fig3c, fig4a, fig4b, fig5, unroll, minatar, smoke; or a file of your own. What
    is done is never done again: the same command resumes, also with more seeds or arms.
    """
    suffix = "" if size == "laptop" else f"_{size}"
    directory = out or Path("runs") / f"study_{Path(name).stem}{suffix}"
    stays = f"what was done stays in {directory}; the same command resumes"
    with work(f"{MEMORY}, or give fewer --arms at once", stays, all_cores=True):
        from purejax_sc.studies import study as studies
        from purejax_sc.studies.study_file import load_study

        loaded = load_study(name, size, seeds, envs, arms)
        with training(quiet, placement) as session:
            found = studies.run(loaded, directory, session, cluster)
    if not quiet:
        tables.print_verdicts(found.verdicts)
        click.echo(f"wrote {directory / 'report.html'}")
    for run, reason in found.failed.items():
        raise UserError(f"{len(found.failed)} arm(s) failed, {run} first: {reason}")


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

    KEY=VALUE changes an option, as in alpha_td=0.1 or ve_target=policy. A comma list sweeps a rate, as in
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
@click.option("--diagnose", is_flag=True, help="Also compare the model and its searches with real play.")
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
    random moves. KEY=VALUE changes the environment, as in levels.depth=20 (Sokoban; generated levels are held out).
    Grids (MinAtar, Catch, DeepSea, Pong, Sokoban), board games, Atari and CartPole can be drawn.
    """
    with work("--episodes or --simulations"):
        chosen = tuple(x for x in options.chosen_searches(**search) if x.simulations)
        from purejax_sc.evaluation import evaluate as evaluation
        from purejax_sc.evaluation import model_quality

        if diagnose:
            model_quality.check(directory)
        how = evaluation.EvaluationOptions(episodes, max_steps, chosen, temperature, seed)
        report = evaluation.evaluate(directory, how, render, speaker(), command_line(), overrides)
    tables.print_evaluation(report)
    written = [directory / evaluation.FILE, *([render] if render else [])]
    if diagnose:
        with work("--diagnose on a run of fewer seeds"):
            sizes = model_quality.DiagnosisOptions(searches=chosen, seed=seed)
            found = model_quality.diagnose(directory, sizes, speaker(), command_line(), overrides)
        tables.print_diagnosis(found)
        written.append(directory / model_quality.FILE)
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
@click.option("--real-actions", is_flag=True, help="Imagine the actions really taken, instead of the policy's own.")
@options.seed("Of the episodes and of the samples.")
@click.option("--render", type=click.Path(path_type=Path), help="Draw a step of the first episode: a new .png.")
@click.option("--step", type=options.Whole(min=0), help="The step to draw.  [default: the middle]")
def imagine(
    directory: Path,
    overrides: tuple[str, ...],
    agent: int | None,
    episodes: int,
    max_steps: int,
    depth: int | None,
    sampled: bool,
    real_actions: bool,
    seed: int,
    render: Path | None,
    step: int | None,
) -> None:
    """Compare model rollouts of an agent of the run directory DIR with real episodes.

    At every step of an episode the policy is rolled out over the learned model for K steps. The imagined rewards and
    values are compared with the real rewards, the root values of the states reached and the return-to-go, and with each
    other: the self-consistency error. KEY=VALUE changes the environment, as for evaluate.

    Only the picture is written. In two-player games the agent plays both sides.
    """
    if step is not None and render is None:
        raise click.UsageError("--step chooses what is drawn: add --render out.png, or leave --step out")
    with work("--episodes or --max-steps"):
        from purejax_sc.evaluation import model_rollouts

        how = model_rollouts.ImaginationOptions(episodes, max_steps, depth, sampled, real_actions, seed)
        report = model_rollouts.imagine_run(directory, how, agent, render, step, speaker(), overrides)
    tables.print_imagination(report, model_rollouts.COLUMNS)
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
        from purejax_sc.games.engine_match import against_engine

        def played() -> tuple[dict[str, Any], dict[str, str]]:
            if opponent is None:
                return matches.round_robin(entrants, how, speaker()), {}
            return against_engine(entrants, opponent, how, speaker())

        report = matches.write_match(played, directory, command_line())
    tables.print_match(report)
    click.echo(f"wrote {directory}")


@cli.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@options.search("Search before each move.")
@click.option("--agent", type=options.Whole(min=0), help="Seed of the run whose agent plays.  [default: the first]")
@options.seed("Of the search.")
def gtp(directory: Path, agent: int | None, seed: int, **search: Any) -> None:
    """Be a Go engine: play with an agent of the run directory DIR in any program that speaks the Go Text Protocol.

    On a clock it searches with fewer simulations than asked for where time is short.
    """
    with work("--simulations"):
        [chosen] = options.chosen_searches(**search)
        from purejax_sc.evaluation.matches import MatchOptions
        from purejax_sc.games.gtp_server import open_server

        server = open_server(directory, MatchOptions(search=chosen, seed=seed), agent, speaker())
        server.serve(sys.stdin, lambda reply: click.echo(reply, nl=False))


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
        from purejax_sc.evaluation.matches import MatchOptions
        from purejax_sc.games.play import from_terminal, open_game

        game = open_game(agent, MatchOptions(search=chosen, seed=seed), run_seed, speaker())
        game.run(int(second), from_terminal, click.echo)


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
@options.out(
    "Image to write; the table goes beside it, with the suffix .csv.", default="compare.png", show_default=True
)
@click.option("--force", is_flag=True, help="Replace the image and the table also if this command did not write them.")
def plot(runs: tuple[str, ...], aggregate: str, out: Path, force: bool) -> None:
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

        comparison = compare.plot(runs, out, aggregate, force)
    tables.print_comparison(comparison.rows)
    for note in compare.notes(comparison):
        click.echo(note)
    click.echo(f"wrote {out} and {out.with_suffix('.csv')}")


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
    except click.Abort as error:  # click's name for a KeyboardInterrupt
        return fail("stopped", interrupts.exit_status(error.__cause__))
    except Stopped as error:
        return fail(error.format_message(), error.status)
    except click.ClickException as error:
        return fail(error.format_message(), error.exit_code)
    return 0
