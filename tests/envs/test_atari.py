"""Atari on the host: the stream of a pool, the paper's protocol, and what is refused."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import host_games

from purejax_sc import envs
from purejax_sc.config import AtariConfig, Config, ConfigError, load
from purejax_sc.envs import atari
from purejax_sc.envs.atari import names
from purejax_sc.envs.host import HostEnvs, HostStep
from purejax_sc.types import EnvSpec

GAMES = [name.removeprefix("atari/") for name in names()]
# One emulator frame per step, always the same response to the same actions.
FRAME_BY_FRAME: dict[str, Any] = {"repeat": 1, "sticky": 0.0}
RIGHT, UP = 3, 2


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., HostEnvs]]:
    """(game, num_envs, seed, options) -> a pool that is closed after the test. Options may be the protocol's."""
    pytest.importorskip("envpool", reason="envpool is not installed")
    pools = []
    protocol = {"repeat": atari.REPEAT, "sticky": atari.STICKY, "max_frames": atari.MAX_FRAMES}

    def make_envs(game: str, num_envs: int = 1, seed: int = 0, **options: Any) -> HostEnvs:
        for name, value in protocol.items():
            monkeypatch.setattr(atari, name.upper(), options.pop(name, value))
        config = Config(env=f"atari/{game}", atari=AtariConfig(**{"size": 32, **options}))
        pools.append(envs.make_host_envs(config, num_envs, seed))
        return pools[-1]

    yield make_envs
    for pool in pools:
        pool.close()


def play(pool: HostEnvs, steps: int, choose: Callable[[HostStep], Any]) -> list[HostStep]:
    """The first observations and what followed `steps` choices (HostStep) -> actions [B]."""
    seen = [pool.recv()]
    for _ in range(steps):
        pool.send(np.broadcast_to(choose(seen[-1]), (pool.num_envs,)))
        seen.append(pool.recv())
    return seen


def at_random(pool: HostEnvs, seed: int = 0) -> Callable[[HostStep], np.ndarray]:
    rng = np.random.default_rng(seed)
    return lambda step: rng.integers(0, pool.spec.num_actions, pool.num_envs)


def scripted(seed: int = 0, repeat: int = 1) -> Callable[[HostStep], np.ndarray]:
    """The action depends on the step of the episode alone, and is the same for `repeat` steps."""
    actions = np.random.default_rng(seed).integers(0, 18, 10_000)
    return lambda step: actions[step.episode_length // repeat]


def check_stream(pool: HostEnvs, seen: list[HostStep]) -> None:
    """What holds for every pool whatever is played."""
    total, length = np.zeros(pool.num_envs), np.zeros(pool.num_envs, int)
    previous_ended = np.ones(pool.num_envs, bool)
    for step in seen:
        assert step.frame.shape == (pool.num_envs, *pool.spec.obs_shape)
        assert step.frame.dtype == pool.spec.obs_dtype
        dtypes = [x.dtype for x in step[1:]]
        assert dtypes == [np.float32, np.float32, bool, bool, np.float32, np.int32, np.int32]
        assert all(x.shape == (pool.num_envs,) for x in step[1:])
        total = np.where(step.first, 0, total + step.reward)
        length = np.where(step.first, 0, length + 1)
        np.testing.assert_array_equal(step.first, previous_ended)
        np.testing.assert_array_equal(step.episode_return, total.astype(np.float32))
        np.testing.assert_array_equal(step.episode_length, length)
        assert not step.reward[step.first].any()
        assert not step.discount[step.first].any()
        assert not (step.first & step.ended).any()
        assert (step.discount[~step.first & ~step.ended] == 1).all()
        previous_ended = step.ended


# --- The stream ---


def test_the_stream_of_a_pool_is_as_drawn() -> None:
    pool = host_games.make_counting_envs((3, 2))  # row 0 is truncated, row 1 terminates
    seen = play(pool, 5, lambda step: step.episode_length % 3)
    check_stream(pool, seen)
    rows = [[tuple(int(x[row]) for x in step[1:]) for step in seen] for row in range(2)]
    # reward, discount, first, valid, return, length, frames; the actions are 0, 1, 2, 0 ...
    assert rows[0] == [
        (0, 0, 1, 1, 0, 0, 0),
        (1, 1, 0, 1, 1, 1, 4),
        (12, 1, 0, 1, 13, 2, 8),
        (23, 1, 0, 0, 36, 3, 12),
        (0, 0, 1, 1, 0, 0, 0),
        (1, 1, 0, 1, 1, 1, 4),
    ]
    assert rows[1] == [
        (0, 0, 1, 1, 0, 0, 0),
        (1, 1, 0, 1, 1, 1, 4),
        (12, 0, 0, 0, 13, 2, 8),
        (0, 0, 1, 1, 0, 0, 0),
        (1, 1, 0, 1, 1, 1, 4),
        (12, 0, 0, 0, 13, 2, 8),
    ]
    assert seen[3].frame[0, 0, :, 0].tolist() == [3, 0, 0, 2]  # the final observation: third step of episode 0
    assert seen[4].frame[0, 0, :, 0].tolist() == [0, 1, 0, 0]


# --- Games ---


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_every_game_runs_a_thousand_steps_past_the_end_of_an_episode(make, game) -> None:
    pool = make(game, num_envs=2, size=96, max_frames=2_000)
    seen = play(pool, 1_000, at_random(pool))
    check_stream(pool, seen)
    assert all(sum(step.ended[row] for step in seen) >= 1 for row in range(2))
    assert len({step.frame.tobytes() for step in seen}) > 100


def test_the_configuration_of_the_paper_starts(make) -> None:
    config = load("atari")
    assert config.atari == AtariConfig()
    spec = envs.make_spec(config)
    pool = envs.make_host_envs(config, 2, 0)
    assert pool.spec == spec == EnvSpec(18, (96, 96, 3), np.dtype(np.uint8), False)
    check_stream(pool, play(pool, 3, at_random(pool)))
    pool.close()


# --- The protocol ---


def test_an_episode_at_the_cap_is_truncated_with_its_final_observation(make) -> None:
    capped = play(make("Breakout", 2, max_frames=40, sticky=0.0), 21, scripted())
    free = play(make("Breakout", 2, sticky=0.0), 10, scripted())
    for step, (one, other) in enumerate(zip(capped, free, strict=False)):
        np.testing.assert_array_equal(one.frame, other.frame, err_msg=str(step))
    assert free[10].valid.all()
    assert capped[10].ended.all()
    assert (capped[10].discount == 1).all()
    assert capped[10].episode_frames.tolist() == [40, 40]
    # The next episode is the first one again, so that nothing of the old one is left.
    for one, other in zip(capped[11:], free, strict=True):
        np.testing.assert_array_equal(one.frame, other.frame)
        np.testing.assert_array_equal(one.reward, other.reward)


def test_a_game_that_ends_terminates_once(make) -> None:
    seen = play(make("Breakout", **FRAME_BY_FRAME), 1_200, scripted(repeat=4))
    end = next(t for t, step in enumerate(seen) if step.ended[0])
    assert seen[end].discount == 0
    assert seen[end + 1].first
    np.testing.assert_array_equal(seen[end + 1].frame, seen[0].frame)
    # Also where the game is over in the very frame of the cap.
    capped = play(make("Breakout", max_frames=end, **FRAME_BY_FRAME), end, scripted(repeat=4))
    assert capped[-1].ended
    assert capped[-1].discount == 0
    # And if the cap is one frame earlier, the end of the game is not seen.
    capped = play(make("Breakout", max_frames=end - 1, **FRAME_BY_FRAME), 2 * end - 1, scripted(repeat=4))
    assert (capped[end - 1].ended, capped[end - 1].discount) == (True, 1)
    for one, other in zip(capped[end:], seen[:end], strict=True):
        np.testing.assert_array_equal(one.frame, other.frame)


def test_rewards_are_not_clipped(make) -> None:
    pool = make("Asterix")
    seen = play(pool, 300, at_random(pool))
    rewards = {float(step.reward[0]) for step in seen} - {0.0}
    assert rewards
    assert min(rewards) >= 50


def test_a_frame_repeats_the_action_before_with_probability_a_quarter(make) -> None:
    # Four frames from a state in which a step up is seen at once. The action executed before was nothing, and
    # a frame that repeats it leaves the next frame the same choice: n frames of delay have probability 0.75 x 0.25^n.
    reference = make("Freeway", 5, **FRAME_BY_FRAME)
    frames = []
    reference.recv()
    for t in range(4):
        reference.send(np.where(t >= np.arange(5), UP, 0))
        frames.append(reference.recv().frame)
    delayed = np.max(frames, axis=0)
    assert len({frame.tobytes() for frame in delayed}) == 5

    episodes, num_envs = 16, 16
    pool = make("Freeway", num_envs, repeat=1, max_frames=4)
    seen = play(pool, 5 * episodes - 1, lambda step: UP)
    assert all(step.ended.all() for step in seen[4::5])
    shown = np.concatenate(
        [np.max([step.frame for step in seen[t + 1 : t + 5]], axis=0) for t in range(0, len(seen), 5)]
    )
    matches = (shown[:, None] == delayed[None]).all((2, 3, 4))
    assert len(matches) == episodes * num_envs
    assert (matches.sum(1) == 1).all()
    # Each delay of n frames is n repeats, and one draw that is none (but after 4 frames there is no further draw).
    delays = matches.argmax(1)
    assert (delays.reshape(episodes, num_envs) != delays[:num_envs]).any(1)[1:].all()  # an episode draws anew
    repeats, draws = delays.sum(), (np.minimum(delays + 1, 4)).sum()
    share, error = repeats / draws, np.sqrt(0.25 * 0.75 / draws)
    assert abs(share - 0.25) < 4 * error


def test_a_seed_gives_the_same_games_again_and_another_seed_others(make) -> None:
    one, same, other = (play(make("Freeway", 3, seed), 60, scripted()) for seed in (7, 7, 8))
    for x, y in zip(one, same, strict=True):
        np.testing.assert_array_equal(x.frame, y.frame)
    assert any((x.frame != y.frame).any() for x, y in zip(one, other, strict=True))
    assert any((x.frame[0] != x.frame[1]).any() for x in one)  # rows differ among themselves, too


def test_all_18_actions_are_those_of_the_joystick(make) -> None:
    full = make("Pong", 1, sticky=0.0)
    minimal = make("Pong", 1, sticky=0.0, full_actions=False)
    assert (full.spec.num_actions, minimal.spec.num_actions) == (18, 6)
    # Pong's own six are nothing, fire, right, left, and the latter with fire.
    for x, y in zip(play(full, 20, lambda _: RIGHT), play(minimal, 20, lambda _: 2), strict=True):
        np.testing.assert_array_equal(x.frame, y.frame)


@pytest.mark.parametrize(("game", "num_actions"), [("Pong", 6), ("Breakout", 4), ("Skiing", 3), ("Alien", 18)])
def test_the_actions_that_a_game_uses_are_counted(make, game, num_actions) -> None:
    config = Config(env=f"atari/{game}", atari=AtariConfig(full_actions=False))
    assert envs.make_spec(config).num_actions == num_actions


def test_an_engine_takes_the_maximum_over_the_last_2_frames(make) -> None:
    engine = play(make("Breakout", sticky=0.0), 60, scripted())[1:]
    single = play(make("Breakout", **FRAME_BY_FRAME), 240, scripted(repeat=4))[1:]
    of_two, of_four = [], []
    for t, step in enumerate(engine):
        group = [one.frame.astype(int) for one in single[4 * t : 4 * t + 4]]
        # Engines scale down what they have taken the maximum of, which is never darker than the other way round.
        assert (step.frame >= np.max(group[2:], axis=0)).all()
        of_two.append(np.abs(step.frame - np.max(group[2:], axis=0)).sum())
        of_four.append(np.abs(step.frame - np.max(group, axis=0)).sum())
        assert step.reward == sum(one.reward for one in single[4 * t : 4 * t + 4])
    assert 3 * sum(of_two) < sum(of_four)


def test_games_of_neighbouring_seeds_have_seeds_of_their_own() -> None:
    assert len({*atari._seeds(64, 0).tolist(), *atari._seeds(64, 1).tolist()}) == 128


# --- What is refused ---


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("atari/pong", ["unknown env 'atari/pong'", "atari/Pong"]),
        ("atari/MsPackman", ["atari/MsPacman"]),
        ("atari/Pong-v5", ["atari/Pong"]),
        ("atari/zzz", ["atari/Alien", "atari/Zaxxon"]),  # nothing is near: all of the family
    ],
)
def test_an_unknown_game_is_refused_in_one_line_with_the_nearest(env, words) -> None:
    config = Config(env=env)
    for function in (envs.make_spec, envs.make_env, lambda config: envs.make_host_envs(config, 2, 0)):
        with pytest.raises(ConfigError) as caught:
            function(config)
        assert "\n" not in str(caught.value)
        for word in words:
            assert word in str(caught.value)


def test_a_missing_engine_is_named_with_its_cure(monkeypatch) -> None:
    for module in ["envpool", *(module for module in sys.modules if module.startswith("envpool."))]:
        monkeypatch.setitem(sys.modules, module, None)
    config = load("atari")
    assert envs.make_spec(config).num_actions == 18  # needs no engine
    for needs_it in (lambda: envs.make_host_envs(config, 2, 0), lambda: envs.make_played_spec(config)):
        with pytest.raises(ConfigError, match=r"needs the package envpool: pip install envpool"):
            needs_it()


@pytest.mark.parametrize("action", [[0, 18], [-1, 0], [0], [0, 0, 0]])
def test_actions_that_an_engine_would_hang_on_are_refused(make, action) -> None:
    pool = make("Pong", 2)
    pool.recv()
    with pytest.raises(ValueError, match="2 numbers from 0 to 17"):
        pool.send(np.array(action))
