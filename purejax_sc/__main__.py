"""The command line. Every mistake of a user ends in one line on stderr and exit status 2, without a traceback.

Libraries are imported inside the commands that need them, so that `--help` is quick.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from purejax_sc import __version__


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
@click.option("--force", is_flag=True, help="Replace the run directory if it exists.")
@click.option(
    "--placement",
    type=click.Choice(["auto", "vmap", "map"]),
    default="auto",
    show_default=True,
    help="Train seeds at once (vmap, for accelerators) or one after the other (map, for CPUs), in one program.",
)
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
    force: bool,
    placement: Any,
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
    _train(loaded, directory, seeds, None if placement == "auto" else placement, force, quiet)


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
    from purejax_sc.plots import RunError
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
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
@click.option(
    "--out", type=click.Path(path_type=Path), default="compare.png", show_default=True, help="Image to write."
)
def plot(directories: tuple[Path, ...], out: Path) -> None:
    """Draw the learning curves of run directories side by side, with 90% intervals, and print their scores."""
    from purejax_sc import plots

    with _one_line(plots.RunError, OSError):
        runs = dict(zip(plots.labels(directories), map(plots.read_curves, directories), strict=True))
        plots.replace_file(out, plots.draw_comparison(runs, out.suffix.removeprefix(".")))
    rows = [("run", "seeds", "final return", "90% interval", "IQM", "AUC")]
    for label, curves in runs.items():
        scores = plots.summarise(curves)
        numbers = (_number(scores["mean"]), _interval(scores["mean_interval"]), _number(scores["iqm"]))
        rows.append((label, str(len(curves.returns)), *numbers, _number(scores["auc"])))
    _print_table(rows)
    click.echo(f"wrote {out}")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        cli.main(args, prog_name="purejax-sc", standalone_mode=False)
    except click.Abort:
        return _fail("stopped", Interrupted.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    return 0


def _train(config: Any, out: Path, seeds: int, placement: Any, force: bool, quiet: bool) -> None:
    _keep_compiled_programs()
    import jax

    from purejax_sc import run
    from purejax_sc.config import ConfigError

    command = shlex.join(["purejax-sc", *sys.argv[1:]])
    try:
        with _one_line(ConfigError, run.RunError, OSError):
            summary = run.train(config, out, seeds, placement, force, quiet, command)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped: what was written stays in {out}") from None
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise UserError("out of memory: lower --seeds, replay.capacity or train.batch_sequences") from None
    if not quiet:
        _print_summary(summary, out)


def _keep_compiled_programs() -> None:
    """Keep compiled programs between runs, in the user's cache directory unless JAX is told another."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "purejax_sc"))


def _use_all_cores() -> None:
    """One JAX device per CPU core, unless JAX is told another number: replicas need nothing from each other."""
    import jax

    if "JAX_NUM_CPU_DEVICES" not in os.environ:
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
    click.echo(f"purejax-sc: {' '.join(message.split())}", err=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
