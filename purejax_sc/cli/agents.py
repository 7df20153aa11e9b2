"""Commands about trained agents: what they reach, what their models know, games, and files of them."""

import sys
from pathlib import Path
from typing import Any

import click

from purejax_sc.cli import options, tables
from purejax_sc.cli.setup import UserError, command_line, make_say, report_errors


@click.command()
@options.directory
@options.overrides
@options.number("--episodes", 32, "Number of episodes for each seed.")
@options.simulations
@click.option("--search", type=click.Choice(["muzero", "gumbel"]), help="Kind of search.  [default: muzero]")
@click.option(
    "--search-temperature",
    type=click.FloatRange(0),
    help="Temperature T: search draws actions from weights^(1/T).  [default: 0, the best action]",
)
@click.option(
    "--dynamics",
    type=click.Choice(["model", "environment"]),
    help="What search steps: the learned model, or the environment as a perfect one.  [default: model]",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Temperature of the sampled policy.",
)
@options.number("--max-steps", 27_000, "Cut episodes after this many steps.")
@options.seed("Seed of the evaluation.")
@options.path("--render", "Draw an episode of the first seed to this .gif or .png.")
@click.option("--diagnose", is_flag=True, help="Also measure how well the model ranks actions, and what searches gain.")
def evaluate(directory: Path, overrides: tuple[str, ...], render: Path | None, diagnose: bool, **how: Any) -> None:
    """Play whole episodes with the agents of the run directory DIR, or a shipped one, and write evaluation.json.

    It is in DIR, or in runs/evaluation_NAME. Agents act greedily, by sampling their policy and, with --simulations, by
    search. Games of two are played against random moves. KEY=VALUE changes the environment, as in levels.depth=20
    (Sokoban; generated levels are held out).
    """
    with report_errors("--episodes or --simulations"):
        chosen = options.chosen_searches(how)
        from purejax_sc.evaluation import evaluate as evaluation
        from purejax_sc.evaluation import model_quality
        from purejax_sc.runs.agents import reports_of

        if diagnose:
            model_quality.check(directory)
        asked = evaluation.EvaluationOptions(searches=chosen, **how)
        report = evaluation.evaluate(directory, asked, render, make_say(), command_line(), overrides)
    tables.print_evaluation(report)
    out = reports_of(directory)
    written = [out / evaluation.FILE, *([render] if render else [])]
    if diagnose:
        with report_errors("--diagnose on a run of fewer seeds"):
            sizes = model_quality.DiagnosisOptions(searches=chosen, seed=asked.seed)
            found = model_quality.diagnose(directory, sizes, make_say(), command_line(), overrides)
        tables.print_diagnosis(found)
        written.append(out / model_quality.FILE)
    for path in written:
        click.echo(f"wrote {path}")


@click.command()
@options.directory
@options.overrides
@options.agent("Seed of the agent.")
@options.number("--steps", 512, "Real steps of each environment.")
@options.number("--envs", 8, "Environments played side by side.")
@click.option("--depth", type=click.IntRange(1, 50), help="Imagined steps.  [default: steps of the model in training]")
@click.option("--sampled", is_flag=True, help="Sample the policy instead of taking the likeliest action.")
@click.option("--real-actions", is_flag=True, help="Imagine the actions really taken, instead of the policy's own.")
@options.seed("Seed of the play.")
def imagine(directory: Path, overrides: tuple[str, ...], agent: int | None, **how: Any) -> None:
    """Compare model rollouts of an agent of the run directory DIR, or a shipped one, with real play.

    From every real step the policy is rolled out over the learned model for K steps. The imagined rewards and values
    are compared with the real rewards, the root values of the states reached and the return-to-go, and with each
    other: the self-consistency error. KEY=VALUE changes the environment. Nothing is written.
    """
    with report_errors("--steps or --envs"):
        from purejax_sc.evaluation import model_rollouts

        chosen = model_rollouts.ImaginationOptions(**how)
        report = model_rollouts.imagine_run(directory, chosen, agent, make_say(), overrides)
    tables.print_imagination(report, model_rollouts.COLUMNS)


@click.command()
@options.overrides
@options.number("--num", 1_000, "Number of levels.")
@options.out("New .npy or .txt file.", required=True)
@options.seed("Seed of the generator.")
@options.path("--render", "Draw the first 20 levels to this .png.")
@options.quiet
def levels(overrides: tuple[str, ...], num: int, out: Path, seed: int, render: Path | None, quiet: bool) -> None:
    """Generate Sokoban levels and write them to a file.

    KEY=VALUE changes a constant of the generator, as in depth=100; file=levels.txt converts a file instead.
    """
    with report_errors("--num or positions="):
        from purejax_sc.config import load
        from purejax_sc.evaluation import levels

        config = load("sokoban", [f"levels.{item}" for item in overrides]).levels
        levels.write(config, num, seed, out, render, make_say(quiet))
    if not quiet:
        click.echo(f"wrote {' and '.join(str(path) for path in (out, render) if path)}")


@click.command()
@click.argument("entrants", nargs=-1, required=True, metavar="DIR...")
@click.option("--opponent", metavar="COMMAND", help='Command of a GTP engine, as in "gnugo --mode gtp".')
@options.number("--games", 100, "Games of each pair, or of each seed against an engine.")
@click.option(
    "--openings", type=click.IntRange(0), default=2, show_default=True, help="Random moves at the start of each game."
)
@click.option("--boards", type=click.IntRange(1), help="Games played side by side against an engine.  [default: 16]")
@options.seed("Seed of the openings and searches.")
@options.out("New directory.  [default: runs/match_<name of DIR>]")
def match(entrants: tuple[str, ...], opponent: str | None, boards: int | None, out: Path | None, **how: int) -> None:
    """Let the agents of run directories play each other, or a Go engine, and write match.json.

    DIR may be a shipped agent, or `random`: uniformly random moves. DIR:32 searches with 32 simulations per move as
    MuZero does, DIR:32:gumbel by Gumbel search: so a run can meet itself. Several play a round robin, which gives Elo
    ratings. Against an engine every seed plays, has each colour in half of the games, and these are written as SGF.
    """
    if opponent is None and boards is not None:
        raise UserError("--boards has no effect without --opponent, an engine: leave it out, or name one")
    directory = out or Path("runs") / f"match_{Path(entrants[0]).name.replace(':', '_')}"
    with report_errors("--games, --boards or the simulations of a search"):
        from purejax_sc.evaluation import matches
        from purejax_sc.games.engine_match import against_engine
        from purejax_sc.results.lock import new_directory

        chosen, records = matches.MatchOptions(**how), dict[str, str]()
        with new_directory(directory):
            if opponent is None:
                report = matches.round_robin(entrants, chosen, make_say())
            else:
                report, records = against_engine(entrants, opponent, chosen, boards or 16, make_say())
            matches.write({"command": command_line(), **report}, records, directory)
    tables.print_match(report)
    click.echo(f"wrote {directory}")


@click.command()
@click.argument("name", metavar="NAME|DIR")
def gtp(name: str) -> None:
    """Be a Go engine: play with an agent in any program that speaks the Go Text Protocol.

    DIR:32 searches with 32 simulations per move, DIR:32:gumbel by Gumbel search. Of a run with several seeds the first
    plays; `export --agent` picks another.
    """
    with report_errors("the simulations of its search"):
        from purejax_sc.games.gtp import open_server

        server = open_server(name, make_say())
        lines = (line.decode(errors="replace") for line in sys.stdin.buffer)
        server.serve(lines, lambda reply: click.echo(reply, nl=False))


@click.command()
@click.argument("name", metavar="NAME|DIR")
@click.option("--second", is_flag=True, help="Let the agent move first.")
def play(name: str, second: bool) -> None:
    """Play a board game in the terminal against an agent: a shipped one, such as tic_tac_toe, or that of a directory.

    It shows its estimated chances. DIR:32 searches with 32 simulations per move, DIR:32:gumbel by Gumbel search.
    """
    with report_errors("the simulations of its search"):
        from purejax_sc.games.play import from_terminal, open_game

        open_game(name, make_say()).run(int(second), from_terminal, click.echo)


@click.command()
@options.directory
@options.out("New directory.", required=True)
@options.agent("Seed of the agent.")
def export(directory: Path, out: Path, agent: int | None) -> None:
    """Keep the agent of the run directory DIR in one small file, to give away or to put into a repository.

    Only the parameters that act are kept, in half precision. The directory can be used like that of the run.
    """
    with report_errors("what else runs on the machine"):
        from purejax_sc.runs import agents as trained

        facts = trained.export(directory, out, agent, make_say())
    click.echo(f"wrote {out}: the agent of seed {facts['seed']}, {facts['bytes'] / 1024:,.0f} KiB")
