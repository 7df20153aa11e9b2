"""From a run directory to what one of its agents imagines: a report, and a picture or a film of an episode."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purejax_sc import memory
from purejax_sc.config import Config
from purejax_sc.envs import make_env
from purejax_sc.evaluation import imagination, imagination_figure, render
from purejax_sc.evaluation.evaluate import EvaluationOptions, evaluation_config
from purejax_sc.evaluation.imagination import ImaginationOptions, Imagined
from purejax_sc.evaluation.imagination_figure import Scene
from purejax_sc.evaluation.real_play import Play
from purejax_sc.networks import make_model
from purejax_sc.results.files import RunError, replace_file
from purejax_sc.results.statistics import as_number
from purejax_sc.runs.agents import find_agent, load_agents, row_of
from purejax_sc.types import Array, Env, Key, Params

Say = Callable[[str], None]


def imagine(
    directory: Path,
    options: ImaginationOptions,
    seed: int | None = None,
    image: Path | None = None,
    step: int | None = None,
    say: Say = lambda text: None,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """What an agent of a run directory imagines. The directory itself is only read.

    Args:
      options:   how.
      seed:      of the run, whose agent it is; None is the first.
      image:     draw the first episode to this .png (one step in full) or .gif (a film).
      step:      which one, or with which the film begins; None for the middle, and for the beginning.
      overrides: KEY=VALUE of the environment, as `evaluate` takes them.

    Returns:
      A tree of numbers: the settings, `steps` of all episodes, how many were `cut`, and `by_k`: means for k = 0 ..
      depth by the names of `imagination.COLUMNS`, None where there is nothing. Raises RunError and ConfigError, before
      anything is written.
    """
    if image is not None:
        render.check_path(image)
    agents = load_agents(find_agent(directory), say)
    row = row_of(seed, agents.seeds, directory)
    config = evaluation_config(agents.config, EvaluationOptions(episodes=options.episodes), overrides)
    options = options._replace(depth=options.depth or config.muesli.unroll)
    env = make_env(config)
    params = jax.tree.map(lambda x: jnp.asarray(x[row]), agents.learner.target)
    key = jax.random.fold_in(jax.random.key(options.seed), agents.seeds[row])
    say(f"seed {agents.seeds[row]}: {options.episodes} episode(s), {options.depth} imagined steps from every real one")
    frames, imagined, by_k = look(config, env, params, key, options, say)
    if image is not None:
        alone, drawn = imagination.first_alone(imagined), pictures(config, env, frames, say)
        scene = Scene(
            env=config.env,
            seed=agents.seeds[row],
            acting="sampled" if options.sampled else "greedy",
            two_player=env.spec.two_player,
            imagined=alone,
            sc_error=by_k["sc_error"],
            value_gap=by_k["value_gap"],
            frames=drawn,
            shown=None if drawn is None else shown_pictures(config, env, alone.shown),
            came=None if drawn is None else came_pictures(config, env, frames[: len(alone.acted)], alone.same[1:]),
        )
        replace_file(image, imagination_figure.draw(scene, image.suffix, step, say))
    return {
        "env": config.env,
        "agent": agents.seeds[row],
        "trained_depth": config.muesli.unroll,
        **options._asdict(),
        "two_player": env.spec.two_player,
        "steps": int(imagined.acted.sum()),
        "cut": int(was_cut(imagined).sum()),
        "by_k": {name: [as_number(x) for x in by_k[name].tolist()] for name in imagination.COLUMNS},
    }


def look(
    config: Config, env: Env, params: Params, key: Key, options: ImaginationOptions, say: Say
) -> tuple[np.ndarray, Imagined, dict[str, np.ndarray]]:
    """Play and imagine: frames [T, *obs_shape] of the first episode, what was imagined, and the means by k."""
    key_play, key_imagine = jax.random.split(key)
    model = make_model(config, env.spec)
    played = imagination.play(env, model, params, key_play, config, options)
    say("played; now it imagines")

    def numbers(params: Params, played: Play, key: Key) -> tuple[Imagined, dict[str, Array]]:
        found = imagination.imagine(model, params, env.spec, played, key, config, options)
        return found, imagination.errors_by_k(found)

    arguments = params, played, key_imagine
    program = memory.compiled(jax.jit(numbers), arguments, "--episodes or --max-steps")
    return played.obs.frame[:, 0], *jax.device_get(program(*arguments))


def was_cut(imagined: Imagined) -> np.ndarray:
    """bool [N]: of the first episodes, which did not end by the rules but were cut, or ended by a time limit."""
    last = np.asarray(imagined.acted).sum(axis=0) - 1
    return np.isnan(np.asarray(imagined.real_value)[1, last, np.arange(len(last))])


def shown_pictures(config: Config, env: Env, shown: Array | None) -> np.ndarray | None:
    """What the model shows [K, T, ..., planes] as uint8 [K, T, height, width, 3]; None if that is none.

    Some drawers tell by the step whose turn it is: the states k steps on begin at step k.
    """
    if shown is None:
        return None
    draw, bits = render.make_drawer(config.env, env.spec), np.asarray(shown)
    begins = (np.zeros((k, *bits.shape[2:]), bool) for k in range(1, len(bits) + 1))
    return np.stack([draw(np.concatenate([begin, x]))[len(begin) :] for begin, x in zip(begins, bits, strict=True)])


def came_pictures(config: Config, env: Env, frames: np.ndarray, same: Array) -> np.ndarray | None:
    """What the model should have shown, as `shown_pictures` has it: white where nobody knows, or nothing came.

    frames: [T, *obs_shape] of an episode.   same: bool [K, T], were the first k actions really taken?
    """
    visible = make_model(config, env.spec).visible
    if visible is None:
        return None
    real = render.make_drawer(config.env, env.spec)(np.asarray(visible(jnp.asarray(frames))))
    came = np.full((len(same), *real.shape), 255, np.uint8)
    for k, known in enumerate(np.asarray(same), 1):
        came[k - 1, :-k][known[:-k]] = real[k:][known[:-k]]
    return came


def pictures(config: Config, env: Env, frames: np.ndarray, say: Say) -> np.ndarray | None:
    """Observations [T, *obs_shape] as uint8 [T, height, width, 3]; None where they are no picture, which is said."""
    try:
        return render.make_drawer(config.env, env.spec)(frames)
    except RunError:
        say(f"{config.env} is drawn without its frames: its observations are no picture")
        return None
