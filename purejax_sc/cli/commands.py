"""The command line. Every mistake of a user ends in one line on stderr and exit status 2.

Libraries are imported inside the commands that need them, so that `--help` is quick.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from purejax_sc import __version__
from purejax_sc.cli import agents, options, tables
from purejax_sc.cli.setup import Stopped, UserError, command_line, fail, make_say, refusals, report_errors, training
from purejax_sc.runs import interrupts

MEMORY = "--seeds, replay.capacity or train.batch_sequences"  # what takes it in training


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.pass_context
def cli(context: click.Context) -> None:
    """Self-consistent models and values, with a Muesli agent, in pure JAX."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.argument("config")
@options.overrides
@options.number("--seeds", 1, "Number of seeds, from `seed` upwards.")
@options.out("Run directory.  [default: runs/<name of CONFIG>]")
@click.option("--resume", is_flag=True, help="Resume from the newest checkpoint of the run directory, if there is one.")
@click.option("--force", is_flag=True, help="Replace the run directory if it exists.")
@options.path("--init-from", "Start from the parameters of another run, seed by seed, or of an agent.", metavar="DIR")
@options.placement
@click.option("--coordinator", metavar="HOST:PORT", help="Train in several processes: address of the first.")
@click.option("--num-processes", type=click.IntRange(1), help="Number of processes; not with --coordinator auto.")
@click.option("--process-id", type=click.IntRange(0), help="Index of this process, from 0.")
@click.option("--track", is_flag=True, help="Also send every log point to Weights & Biases.")
@click.option("--print-config", is_flag=True, help="Print the complete configuration, and exit.")
@options.quiet
def train(
    config: str,
    overrides: tuple[str, ...],
    seeds: int,
    out: Path | None,
    resume: bool,
    force: bool,
    init_from: Path | None,
    placement: Any,
    coordinator: str | None,
    num_processes: int | None,
    process_id: int | None,
    track: bool,
    print_config: bool,
    quiet: bool,
) -> None:
    """Train the agent of CONFIG: a YAML file, or the name of a shipped configuration such as catch.

    KEY=VALUE changes single values, as in hyper.sc_weight=0.5 sc.update=dyna.
    """
    from purejax_sc import config as configs

    with refusals():
        loaded = configs.load(config, overrides)
    if print_config:
        click.echo(configs.to_yaml(loaded), nl=False)
        return
    if coordinator is None and (num_processes, process_id) != (None, None):
        raise UserError("--num-processes and --process-id need --coordinator HOST:PORT: add it, or leave them out")
    if resume and force:
        raise UserError("--resume resumes a run and --force replaces it: give one of them")
    directory = out or Path("runs") / Path(config).stem
    stays = f"what was written stays in {directory}; --resume continues from there"
    with report_errors(MEMORY, stays, seeds > 1 or loaded.train.data_shards > 1, alone=coordinator is None):
        from purejax_sc.runs import fit
        from purejax_sc.training import distributed

        if coordinator is not None:
            agreed = {"config": loaded, "seeds": seeds, "placement": placement, "resume": resume, "force": force}
            agreed["init_from"] = init_from
            distributed.join(coordinator, num_processes, process_id, agreed)
        with ExitStack() as open_, training(quiet, placement) as session:
            session = session._replace(init_from=init_from)
            if track:
                from purejax_sc.runs.tracking import tracked

                session = session._replace(on_log=open_.enter_context(tracked(loaded, directory, session.on_log)))
            summary = fit.train(loaded, directory, seeds, force=force, resume=resume, **session._asdict())
    import jax

    if not quiet and jax.process_index() == 0:
        tables.print_summary(summary, directory)


@cli.command()
@click.argument("config")
@click.argument("settings", nargs=-1, metavar="[KEY=A,B,...]...")
@options.number("--seeds", 1, "Number of seeds for each setting.")
@options.out("New directory.  [default: runs/sweep_<name of CONFIG>]")
@options.placement
@click.option("--resume", is_flag=True, help="Resume the sweep in the directory, also with more seeds or settings.")
@options.quiet
def sweep(
    config: str, settings: tuple[str, ...], seeds: int, out: Path | None, placement: Any, resume: bool, quiet: bool
) -> None:
    """Train CONFIG with every combination of settings, times seeds; one table and one picture.

    All combinations of hyper.* and sc.update are one compiled program, as in hyper.learning_rate=1e-4,3e-4
    sc.update=none,direct,dyna. Each combination of other settings is one more: sc.unroll=3,5.
    """
    directory = out or Path("runs") / f"sweep_{Path(config).stem}"
    stays = f"what was done stays in {directory}; --resume continues from there"
    with report_errors(f"{MEMORY}, or give fewer values at once", stays, all_cores=True):
        from purejax_sc.runs import sweep as sweeps

        with training(quiet, placement) as session:
            report = sweeps.sweep(config, settings, directory, seeds, resume, session)
    if not quiet:
        tables.print_settings(report["settings"])
        click.echo(f"wrote {directory}")


@cli.command()
@click.argument("name", metavar="NAME|FILE")
@click.option(
    "--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True, help="Scale of the study."
)
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds for each arm.  [default: that of the study]")
@click.option("--envs", callback=options.names, help="Only these environments, separated by commas.")
@click.option("--arms", callback=options.names, help="Only these arms, separated by commas.")
@options.out("Study directory, new or existing.  [default: runs/study_NAME]")
@options.placement
@click.option("--cluster", metavar="ADDRESS", help="Train on the workers of this Dask scheduler.")
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

    Studies: fig2a, fig2b, fig3a, fig3b, fig3c, fig4a, fig4b, fig5, unroll, minatar, smoke; or a file of your own. The
    same command resumes, also with more seeds or arms.
    """
    suffix = "" if size == "laptop" else f"_{size}"
    directory = out or Path("runs") / f"study_{Path(name).stem}{suffix}"
    stays = f"what was done stays in {directory}; the same command resumes"
    with report_errors(f"{MEMORY}, or give fewer --arms at once", stays, all_cores=True):
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


@cli.command()
@click.argument("task", type=click.Choice(["evaluation", "control", "noise", "all"]))
@options.overrides
@options.number("--seeds", 30, "Number of MDPs, from `seed` upwards.")
@options.out("New directory.  [default: runs/tabular_<TASK>]")
@options.quiet
def tabular(task: Any, overrides: tuple[str, ...], seeds: int, out: Path | None, quiet: bool) -> None:
    """Run the paper's tabular study: all methods on random MDPs, with curves, paired scores and figures.

    KEY=VALUE changes an option, as in alpha_td=0.1 or batch=1; updates=none,dyna,direct chooses methods.
    `purejax-sc keys tabular` explains each KEY.
    """
    directory = out or Path("runs") / f"tabular_{task}"
    with report_errors("--seeds, or give fewer values at once", all_cores=True):
        from purejax_sc.tabular import study

        tasks: Any = study.TASKS if task == "all" else (task,)
        summary = study.run(tasks, overrides, directory, seeds, make_say(quiet), command_line())
    if not quiet:
        tables.print_methods(summary["methods"])
        click.echo(f"wrote {directory}")


@cli.command()
@click.argument("runs", nargs=-1, required=True, metavar="[LABEL=]DIR...")
@options.out(
    "Image to write; the table goes beside it, with the suffix .csv.", default="compare.png", show_default=True
)
def plot(runs: tuple[str, ...], out: Path) -> None:
    """Draw run directories side by side, with 90% stratified bootstrap intervals over seeds, and print their scores.

    A run has its LABEL, or else the name of its directory; each environment gets a panel. Runs of one label on several
    environments are one method, scored over all of them; those on one environment are taken together. AUC is
    normalised as in the paper: 0 is the lowest return and 1 the best run's AUC. P(> X) is the probability that a seed
    ends with a higher return than a seed of X, the first run.
    """
    with refusals():
        from purejax_sc.results import compare

        comparison = compare.plot(runs, out)
    tables.print_comparison(comparison.rows)
    for note in compare.notes(comparison):
        click.echo(note)
    click.echo(f"wrote {out} and {out.with_suffix('.csv')}")


@cli.command()
@click.argument("pattern", default="")
def keys(pattern: str) -> None:
    """Show the keys of configurations, and of `tabular`, with PATTERN in their name or meaning."""
    from purejax_sc.config import reference

    found = reference.matching(pattern)
    if not found:
        raise UserError(f"no key has {pattern!r} in its name or meaning: purejax-sc keys shows all")
    tables.print_keys(found)


for command in (agents.evaluate, agents.imagine, agents.levels, agents.match, agents.gtp, agents.play, agents.export):
    cli.add_command(command)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        _ = "".join(sys.argv[1:] if args is None else args).encode()
        cli.main(args, prog_name="purejax-sc", standalone_mode=False)
    except UnicodeEncodeError:  # of a name with bytes that are no text, which neither Orbax nor a summary can hold
        return fail("an argument is not UTF-8: give the file or directory another name", 2)
    except click.Abort as error:  # click's name for a KeyboardInterrupt
        return fail("stopped", interrupts.exit_status(error.__cause__))
    except Stopped as error:
        return fail(error.format_message(), error.status)
    except click.ClickException as error:
        hint, taken = "", error.ctx.command.params if isinstance(error, click.NoSuchOption) and error.ctx else ()
        if {"overrides", "settings"} & {parameter.name for parameter in taken}:
            hint = " Settings are written KEY=VALUE, without dashes."
        return fail(f"{error.format_message()}{hint}", error.exit_code)
    return 0
