"""Commands about trained agents: what they reach, what their models know, games, and files of them."""

import sys
from pathlib import Path
from typing import Any

import click

from purejax_sc.cli import options, tables
from purejax_sc.cli.setup import command_line, speaker, work

directory_argument = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
overrides_argument = click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")


@click.command()
@directory_argument
@overrides_argument
@options.number("--episodes", 32, "Episodes of each seed.")
@options.search(
    "Also search over the learned model, with so many simulations per action, as in 32 or 8,32,128.",
    many=True,
    real=True,
)
@click.option(
    "--temperature", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Of samples."
)
@options.number("--max-steps", 27_000, "Cut longer episodes; how many were is reported.")
@options.seed("Of the evaluation.")
@options.path("--render", "Draw an episode of the first seed: a new .gif or .png.")
@click.option("--diagnose", is_flag=True, help="Also compare the model and its searches with real play.")
def evaluate(
    directory: Path, overrides: tuple[str, ...], render: Path | None, diagnose: bool, seed: int, **how: Any
) -> None:
    """Play whole episodes with the agents of the run directory DIR, and write DIR/evaluation.json.

    They act greedily, by sampling their policy and, with --simulations, by search. Games of two are played against
    random moves. KEY=VALUE changes the environment, as in levels.depth=20 (Sokoban; generated levels are held out).
    Grids (MinAtar, Catch, DeepSea, Pong, Sokoban), board games, Atari and CartPole can be drawn.
    """
    with work("--episodes or --simulations"):
        searches = tuple(x for x in options.pop_searches(how) if x.simulations)
        from purejax_sc.evaluation import evaluate as evaluation
        from purejax_sc.evaluation import model_quality

        if diagnose:
            model_quality.check(directory)
        chosen = evaluation.EvaluationOptions(searches=searches, seed=seed, **how)
        report = evaluation.evaluate(directory, chosen, render, speaker(), command_line(), overrides)
    tables.print_evaluation(report)
    written = [directory / evaluation.FILE, *([render] if render else [])]
    if diagnose:
        with work("--diagnose on a run of fewer seeds"):
            sizes = model_quality.DiagnosisOptions(searches=searches, seed=seed)
            found = model_quality.diagnose(directory, sizes, speaker(), command_line(), overrides)
        tables.print_diagnosis(found)
        written.append(directory / model_quality.FILE)
    for path in written:
        click.echo(f"wrote {path}")


@click.command()
@directory_argument
@overrides_argument
@options.agent("Seed of the run whose agent it is.")
@options.number("--episodes", 8, "For the table.")
@options.number("--max-steps", 2_500, "Cut longer episodes.")
@click.option("--depth", type=click.IntRange(1, 50), help="Imagined steps.  [default: model steps in training]")
@click.option("--sampled", is_flag=True, help="Draw actions from the policy instead of taking the likeliest.")
@click.option("--real-actions", is_flag=True, help="Imagine the actions really taken, instead of the policy's own.")
@options.seed("Of the episodes and of the samples.")
@options.path("--render", "Draw a step of the first episode: a new .png.")
@click.option("--step", type=click.IntRange(0), help="The step to draw.  [default: the middle]")
def imagine(
    directory: Path, overrides: tuple[str, ...], agent: int | None, render: Path | None, step: int | None, **how: Any
) -> None:
    """Compare model rollouts of an agent of the run directory DIR with real episodes.

    At every step of an episode the policy is rolled out over the learned model for K steps. The imagined rewards and
    values are compared with the real rewards, the root values of the states reached and the return-to-go, and with each
    other: the self-consistency error. KEY=VALUE changes the environment, as for evaluate.

    Only the picture is written. In two-player games the agent plays both sides.
    """
    if render is None:
        options.refuse_given(("step",), "chooses what is drawn: add --render out.png, or leave it out")
    with work("--episodes or --max-steps"):
        from purejax_sc.evaluation import model_rollouts

        chosen = model_rollouts.ImaginationOptions(**how)
        report = model_rollouts.imagine_run(directory, chosen, agent, render, step, speaker(), overrides)
    tables.print_imagination(report, model_rollouts.COLUMNS)
    if render:
        click.echo(f"wrote {render}")


@click.command()
@overrides_argument
@options.number("--num", 1_000, "How many levels.")
@options.out("New file: .npy or .txt.", required=True)
@options.seed("Of the generator.")
@options.path("--render", "Draw the first 20 levels: a new .png.")
@options.quiet
def levels(overrides: tuple[str, ...], num: int, out: Path, seed: int, render: Path | None, quiet: bool) -> None:
    """Generate Sokoban levels, see that their solutions solve them, and write them to a file.

    KEY=VALUE is a setting of `levels`, as in depth=40, split=test or positions=100_000; file=levels.txt converts a file
    instead. Training reads a file with levels.file=FILE.
    """
    with work("--num or positions="):
        from purejax_sc.config import load
        from purejax_sc.evaluation import levels

        config = load("sokoban", [f"levels.{word}" for word in overrides]).levels
        facts = levels.write(config, num, seed, out, render, speaker(quiet))
    if not quiet:
        tables.print_facts(facts)
        click.echo(f"wrote {' and '.join(str(path) for path in (out, render) if path)}")


@click.command()
@click.argument("entrants", nargs=-1, required=True, metavar="DIR...")
@click.option("--opponent", metavar="COMMAND", help='Engine that speaks GTP, as in "gnugo --mode gtp".')
@options.number("--games", 100, "Of a pair, or a seed.")
@options.search("Search before each move.", real=True)
@click.option("--sampled", is_flag=True, help="Draw moves from the policy instead of playing the best.")
@click.option("--openings", type=click.IntRange(0), default=2, show_default=True, help="Random moves at the start.")
@click.option("--timeout", type=click.FloatRange(0.1), default=60.0, show_default=True, help="Of an engine, in s.")
@options.number("--boards", 16, "Games with an engine at a time.")
@click.option(
    "--handicap", type=click.IntRange(0), default=0, show_default=True, help="Stones ahead of an engine, at random."
)
@options.seed("Of the openings.")
@options.out("New directory.  [default: runs/match_<name of DIR>]")
def match(entrants: tuple[str, ...], opponent: str | None, out: Path | None, **how: Any) -> None:
    """Let the agents of run directories play each other, or a Go engine, and write a table and the games.

    DIR may be `random`: uniformly random moves. DIR:32 searches with 32 simulations per move, DIR:32:gumbel by Gumbel
    search, and DIR:0 not at all: so a run can meet itself. Several play a round robin, which gives Elo ratings.
    Against an engine every seed plays, and has each colour in half of the games:

    purejax-sc match runs/go_5x5 --opponent "gnugo --mode gtp --level 1 --chinese-rules --positional-superko
    --play-out-aftermath --capture-all-dead"
    """
    if opponent is None:
        options.refuse_given(
            ("timeout", "boards", "handicap"), "has no effect without --opponent, an engine: leave it out, or name one"
        )
    directory = out or Path("runs") / f"match_{Path(entrants[0]).name.replace(':', '_')}"
    with work("--games, --boards or --simulations"):
        [search] = options.pop_searches(how, needed=not any(":" in name for name in entrants))
        if search.simulations and how["sampled"]:
            raise click.UsageError("--sampled draws moves from the policy, --simulations searches: give one of them")
        from purejax_sc.evaluation import matches
        from purejax_sc.games.engine_match import against_engine

        chosen = matches.MatchOptions(search=search, **how)

        def played() -> tuple[dict[str, Any], dict[str, str]]:
            if opponent is None:
                return matches.round_robin(entrants, chosen, speaker()), {}
            return against_engine(entrants, opponent, chosen, speaker())

        report = matches.write_match(played, directory, command_line())
    tables.print_match(report)
    click.echo(f"wrote {directory}")


@click.command()
@directory_argument
@options.search("Search before each move.")
@options.agent("Seed of the run whose agent plays.")
@options.seed("Of the search.")
def gtp(directory: Path, agent: int | None, seed: int, **how: Any) -> None:
    """Be a Go engine: play with an agent of the run directory DIR in any program that speaks the Go Text Protocol.

    On a clock it searches with fewer simulations than asked for where time is short.
    """
    with work("--simulations"):
        [search] = options.pop_searches(how)
        from purejax_sc.evaluation.matches import MatchOptions
        from purejax_sc.games.gtp_server import open_server

        server = open_server(directory, MatchOptions(search=search, seed=seed), agent, speaker())
        server.serve(sys.stdin, lambda reply: click.echo(reply, nl=False))


@click.command()
@click.argument("agent", metavar="NAME|DIR")
@options.search("Let the agent search before each move.")
@click.option("--second", is_flag=True, help="Let the agent move first.")
@options.agent("Seed of the run whose agent plays.", "run_seed")
@options.seed("Of the search.")
def play(agent: str, second: bool, run_seed: int | None, seed: int, **how: Any) -> None:
    """Play a board game against an agent: one that is shipped, such as tic_tac_toe, or that of a directory.

    It tells what it thinks of its chances, and gives hints. DIR:32 searches with 32 simulations per move.
    """
    with work("--simulations"):
        [search] = options.pop_searches(how, needed=":" not in agent)
        from purejax_sc.evaluation.matches import MatchOptions
        from purejax_sc.games.play import from_terminal, open_game

        game = open_game(agent, MatchOptions(search=search, seed=seed), run_seed, speaker())
        game.run(int(second), from_terminal, click.echo)


@click.command()
@directory_argument
@options.out("New directory.", required=True)
@options.agent("Seed of the run to keep.")
def export(directory: Path, out: Path, agent: int | None) -> None:
    """Keep the agent of the run directory DIR in one small file, to give away or to put into a repository.

    The new directory can be evaluated and played with like the run. It cannot be trained further: only the parameters
    that act are kept, in half precision.
    """
    with work("what else runs on the machine"):
        from purejax_sc.evaluation.export import export as export_agent

        facts = export_agent(directory, out, agent, speaker())
    click.echo(f"wrote {out}: the agent of seed {facts['seed']}, {facts['bytes'] / 1024:,.0f} KiB")
