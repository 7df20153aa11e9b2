"""Atari 2600 games on the host, played by EnvPool or by ale-py's vector environment, with one interface.

Both run the Arcade Learning Environment and give the same frames, rewards and ends, but for one thing: EnvPool cannot
start without a no-op, so that its episodes begin one emulator frame later than ale-py's. And where a game is over,
ale-py shows the frame before the last.
"""

import re
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from purejax_sc.config import AtariConfig, Config
from purejax_sc.envs.atari_games import SCORES
from purejax_sc.envs.base import check_options
from purejax_sc.envs.host import HostEnvs, HostStep, Played, first_step, next_step
from purejax_sc.types import EnvSpec

JOYSTICK = 18  # all actions of the Arcade Learning Environment: nothing, fire, eight directions, these with fire
# Skiing knows no fire: its full action set is nothing and eight directions. Actions with fire act as those without.
_WITHOUT_FIRE = np.array([0, 0, *range(1, 9), *range(1, 9)])


class Engine(Protocol):
    """B games. A row whose episode has ended resets at its next action, whatever that is, and plays no frame.

    The frame of a step is the maximum over its last two emulator frames. The paper's is that over all four, which no
    engine does by itself.
    """

    def start(self) -> np.ndarray:
        """First frames uint8 [B, H, W, C]."""

    def send(self, action: np.ndarray) -> None:
        """Act in every game: int32 [B]."""

    def recv(self) -> Played:
        """What followed in arrays that the engine does not write to again. Waits."""

    def close(self) -> None: ...


def names() -> tuple[str, ...]:
    """The 57 games of the literature, in EnvPool's spelling."""
    return tuple(f"atari/{game}" for game in SCORES)


def make_spec(config: Config) -> EnvSpec:
    """The spec of one frame of the game that `config.env` names; starts no game.

    Raises ConfigError for options that Atari lacks, ModuleNotFoundError where an engine is needed and not installed.
    """
    game = _game(config)
    options = config.atari
    num_actions = JOYSTICK if options.full_actions else _ENGINES[options.backend].count_actions(game)
    shape = (options.size, options.size, 1 if options.gray else 3)
    return EnvSpec(num_actions, shape, np.dtype(np.uint8), two_player=False)


def check_installed(config: Config) -> None:
    """Raise ModuleNotFoundError where the engine that will play is not installed."""
    import_module(_ENGINES[config.atari.backend].package)


def make_envs(config: Config, num_envs: int, seed: int) -> HostEnvs:
    """`num_envs` games of the one that `config.env` names. Those with different seeds are independent.

    Raises ConfigError for options that Atari lacks, ModuleNotFoundError where the engine is not installed.
    """
    options = config.atari
    engine = _ENGINES[options.backend](_game(config), options, _seeds(num_envs, seed))
    return AtariEnvs(make_spec(config), num_envs, engine, options.repeat, _action_table(config))


class AtariEnvs:
    """A `HostEnvs` of games."""

    def __init__(
        self, spec: EnvSpec, num_envs: int, engine: Engine, frames_per_step: int, action_table: np.ndarray
    ) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self._engine = engine
        self._frames_per_step = frames_per_step
        self._action_table = action_table
        self._shown: HostStep | None = None

    def recv(self) -> HostStep:
        if self._shown is None:
            self._shown = first_step(self._engine.start())
        else:
            self._shown = next_step(self._shown, *self._engine.recv(), frames_per_step=self._frames_per_step)
        return self._shown

    def send(self, action: np.ndarray) -> None:
        """Act in every game: integer [B]. Raises ValueError for other actions than the spec's: an engine would hang."""
        action = np.asarray(action)
        if action.shape != (self.num_envs,) or action.min() < 0 or action.max() >= self.spec.num_actions:
            raise ValueError(f"actions must be {self.num_envs} numbers from 0 to {self.spec.num_actions - 1}: {action}")
        self._engine.send(self._action_table[action])

    def close(self) -> None:
        self._engine.close()


class EnvPoolEngine:
    """EnvPool as an `Engine`; the memory of what it returns belongs to the receiver."""

    package = "envpool"

    def __init__(self, game: str, options: AtariConfig, seeds: np.ndarray) -> None:
        import envpool

        self._rows = np.arange(len(seeds), dtype=np.int32)
        self._envs: Any = envpool.make(
            f"{game}-v5",
            env_type="gymnasium",
            num_envs=len(seeds),
            seed=seeds.tolist(),
            num_threads=0,  # as many as there are cores or games, whichever is less
            max_episode_steps=options.max_frames // options.repeat,
            frame_skip=options.repeat,
            img_height=options.size,
            img_width=options.size,
            gray_scale=options.gray,
            stack_num=1,
            repeat_action_probability=options.sticky,
            full_action_space=options.full_actions,
            noop_max=1,  # one no-op, as 0 crashes it
            use_fire_reset=False,
            episodic_life=False,
            zero_discount_on_life_loss=False,
            reward_clip=False,
        )

    @staticmethod
    def count_actions(game: str) -> int:
        """Actions that the game uses."""
        import envpool

        return int(envpool.make_spec(f"{game}-v5", full_action_space=False).action_space.n)

    def start(self) -> np.ndarray:
        self._envs.async_reset()
        return self._channels_last(self._envs.recv()[0])

    def send(self, action: np.ndarray) -> None:
        self._envs.send(action, self._rows)

    def recv(self) -> Played:
        obs, reward, _, truncated, info = self._envs.recv()
        assert np.array_equal(info["env_id"], self._rows)
        # Its own `terminated` is False where the game is over at the cap.
        return Played(self._channels_last(obs), reward, info["terminated"].astype(bool), truncated)

    def close(self) -> None:
        self._envs.close()

    @staticmethod
    def _channels_last(obs: np.ndarray) -> np.ndarray:
        """From [n, C, H, W], a channel at a time: NumPy copies a transposed view several times more slowly."""
        return np.stack([obs[:, channel] for channel in range(obs.shape[1])], axis=-1)


class AleEngine:
    """ale-py's vector environment as an `Engine`.

    The cap is kept here: at its own, as at the end of a game, ale-py does not show the last frame.
    """

    package = "ale_py"

    def __init__(self, game: str, options: AtariConfig, seeds: np.ndarray) -> None:
        from ale_py.vector_env import AtariVectorEnv
        from gymnasium.vector import AutoresetMode

        self._gray = options.gray
        self._max_frames = options.max_frames
        self._truncated = np.zeros(len(seeds), bool)  # rows to reset
        self._seeds = seeds
        self._vector: Any = AtariVectorEnv(
            rom_name(game),
            num_envs=len(seeds),
            num_threads=0,  # as many as there are cores or games, whichever is less
            autoreset_mode=AutoresetMode.NEXT_STEP,
            max_num_frames_per_episode=options.max_frames + 2 * options.repeat,  # is never reached
            frameskip=options.repeat,
            maxpool=options.repeat > 1,
            img_height=options.size,
            img_width=options.size,
            grayscale=options.gray,
            stack_num=1,
            repeat_action_probability=options.sticky,
            full_action_space=options.full_actions,
            noop_max=0,
            use_fire_reset=False,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=False,
        )

    @staticmethod
    def count_actions(game: str) -> int:
        """Actions that the game uses."""
        import ale_py

        path = ale_py.roms.get_rom_path(rom_name(game))
        assert path is not None, game
        ale = ale_py.ALEInterface()
        ale.loadROM(path)
        return len(ale.getMinimalActionSet())

    def start(self) -> np.ndarray:
        return self._frames(self._vector.reset(seed=self._seeds)[0])

    def send(self, action: np.ndarray) -> None:
        self._vector.send(action)

    def recv(self) -> Played:
        obs, reward, terminated, _, info = self._vector.recv()
        resets = self._truncated
        if resets.any():  # these rows have played on, which nobody sees
            obs, _ = self._vector.reset(options={"reset_mask": resets})
        self._truncated = (info["episode_frame_number"] >= self._max_frames) & ~terminated & ~resets
        return Played(self._frames(obs), reward, terminated, self._truncated)

    def close(self) -> None:
        self._vector = None  # it ends with its last reference

    def _frames(self, obs: np.ndarray) -> np.ndarray:
        return obs[:, 0, ..., None] if self._gray else obs[:, 0]


_ENGINES: dict[str, Any] = {"envpool": EnvPoolEngine, "ale": AleEngine}


def rom_name(game: str) -> str:
    """ale-py's spelling: ms_pacman for MsPacman."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower()


def _seeds(num_envs: int, seed: int) -> np.ndarray:
    """Of single games, int32 [num_envs]."""
    return (np.random.SeedSequence(seed).generate_state(num_envs) % np.uint32(2**31 - 1)).astype(np.int32)


def _game(config: Config) -> str:
    check_options(config.env, config.env_options, ())
    return config.env.removeprefix("atari/")


def _action_table(config: Config) -> np.ndarray:
    """The engine's number of each of our actions."""
    if config.env == "atari/Skiing" and config.atari.full_actions:
        return _WITHOUT_FIRE.astype(np.int32)
    return np.arange(JOYSTICK, dtype=np.int32)
