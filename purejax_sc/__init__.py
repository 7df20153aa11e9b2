"""Self-consistent models and values, with a Muesli agent, in pure JAX.

The public names, which are loaded when they are first used, so that `import purejax_sc` and `purejax-sc --help` stay
quick:

    load(name, overrides) -> Config       a YAML file, or a shipped one such as "catch", with "KEY=VALUE" or a dict
    Config, Hyper                         what decides the program, and the numbers in it that may be traced
    Gates                                 where the gradient of self-consistency flows: an update of your own
    ConfigError, RunError                 what cannot be run, or its directory; one line that says what to do
    NonFiniteError                        a RunError: a metric became NaN or infinite
    make_train(config, env)               train(key, hyper): a whole run as one pure function, for jit and vmap
    make_trainer(config, env)             the same in pieces, for a loop of your own
    train(config, out)                    a run directory: curves, summary, checkpoints
    Point                                 a log point, as `on_log` gets it
    evaluate(directory, options)          whole episodes of its agents, reported in its evaluation.json
    EvaluationOptions, SearchOptions      how many episodes, by which searches, from which seed
    load_agent(directory, seed) -> Agent  a trained agent: act, search, params, config, model; see Agent.from_state
    load_learner(directory, seed)         the learner's state in its checkpoint, to go on from
    Env, EnvSpec, Step                    what an environment of your own is made of
    check_env(env), from_gymnax(env)      what is wrong with it; one of gymnax's as an Env
    Model, Params                         and a model
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from purejax_sc.agent.search import SearchOptions as SearchOptions
    from purejax_sc.config import Config as Config
    from purejax_sc.config import ConfigError as ConfigError
    from purejax_sc.config import Hyper as Hyper
    from purejax_sc.config import load as load
    from purejax_sc.envs.check import check_env as check_env
    from purejax_sc.envs.gymnax import from_gymnax as from_gymnax
    from purejax_sc.evaluation.agent import Agent as Agent
    from purejax_sc.evaluation.agent import load_agent as load_agent
    from purejax_sc.evaluation.agent import load_learner as load_learner
    from purejax_sc.evaluation.evaluate import EvaluationOptions as EvaluationOptions
    from purejax_sc.evaluation.evaluate import evaluate as evaluate
    from purejax_sc.results.files import RunError as RunError
    from purejax_sc.runs.fit import NonFiniteError as NonFiniteError
    from purejax_sc.runs.fit import train as train
    from purejax_sc.training.anakin import make_train as make_train
    from purejax_sc.training.anakin import make_trainer as make_trainer
    from purejax_sc.training.compiled import Point as Point
    from purejax_sc.types import Env as Env
    from purejax_sc.types import EnvSpec as EnvSpec
    from purejax_sc.types import Gates as Gates
    from purejax_sc.types import Model as Model
    from purejax_sc.types import Params as Params
    from purejax_sc.types import Step as Step

__version__ = "0.2.0.dev0"

_HOMES = {
    "agent.search": ("SearchOptions",),
    "config": ("Config", "ConfigError", "Hyper", "load"),
    "envs.check": ("check_env",),
    "envs.gymnax": ("from_gymnax",),
    "evaluation.agent": ("Agent", "load_agent", "load_learner"),
    "evaluation.evaluate": ("EvaluationOptions", "evaluate"),
    "results.files": ("RunError",),
    "runs.fit": ("NonFiniteError", "train"),
    "training.anakin": ("make_train", "make_trainer"),
    "training.compiled": ("Point",),
    "types": ("Env", "EnvSpec", "Gates", "Model", "Params", "Step"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
