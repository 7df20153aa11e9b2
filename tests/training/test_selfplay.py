"""Self-play: the learner on a game of two players, and the judge that learning must not notice."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purejax_sc.config import Config, from_tree
from purejax_sc.envs import episodes, make_env
from purejax_sc.networks import make_model
from purejax_sc.training import anakin
from purejax_sc.training.compiled import chunk_sizes, log_metrics
from purejax_sc.training.sharding import compile_program, make_layout, make_local_trainer

SMALL = {
    "env": "pgx/tic_tac_toe",
    "network": {"kind": "mlp", "width": 8, "head_width": 0},
    "train": {
        "env_steps": 160, "num_envs": 2, "sequence_length": 8, "batch_sequences": 2, "replay_share": 0.0,
        "log_points": 5,
    },
    "muesli": {"returns": "vtrace", "unroll": 2, "bins": 5, "value_max": 2.0, "num_action_samples": 0},
    "sc": {"update": "none"},
    "hyper": {"learning_rate": 0.1, "discount": 1.0, "target_rate": 0.5},
}  # fmt: skip


def config(**changes: object) -> Config:
    return from_tree(SMALL | changes)


def run(config: Config):
    """The metrics of every log metrics, and the states after it."""
    layout = make_layout(1, config.train.data_shards)
    program = compile_program(make_local_trainer(config, layout), config, [0], [config.hyper], layout)
    kept, states = [], program.init()
    for n in chunk_sizes(config.num_iterations, config.train.log_points):
        states, metrics = program.chunk(states, n)
        kept.append((log_metrics(metrics, n, 1), jax.device_get(states._replace(driver=(), key=()))))
    return kept


@pytest.fixture(scope="module")
def judged():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anakin, "EARLIER", 0.5)
        return run(config(selfplay_eval={"games": 8}))


def equal(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_judging_changes_nothing_that_is_learned(judged) -> None:
    alone = run(config(selfplay_eval={"games": 0}))
    for (metrics, states), (unjudged, other) in zip(judged, alone, strict=True):
        assert equal(states.learner, other.learner)
        assert metrics["loss"] == unjudged["loss"]
        assert np.isnan(unjudged["episode_return"])
        assert abs(metrics["episode_return"]) <= 1
        assert abs(metrics["result_earlier"]) <= 1


def test_the_earlier_agent_follows_for_its_share_of_the_run_and_then_stays(judged) -> None:
    acting = [states.learner.target for _, states in judged]
    earlier = [states.earlier for _, states in judged]
    # 10 updates, of which a log point has 2: half of them are over with the second, the fifth update is in the third
    assert [equal(a, e) for a, e in zip(acting, earlier, strict=True)] == [True, True, False, False, False]
    assert all(equal(e, acting[1]) for e in earlier[1:])


def test_one_seed_on_two_devices_is_judged_too() -> None:
    last, _ = run(config(selfplay_eval={"games": 8}, train=SMALL["train"] | {"data_shards": 2}))[-1]
    assert abs(last["episode_return"]) <= 1
    assert abs(last["result_earlier"]) <= 1


def test_rewards_of_the_stream_belong_to_the_mover_and_discounts_change_sides() -> None:
    """The data that self-play learns from: the last move of a won game has reward 1 and discount 0."""
    small = config()
    env = make_env(small)
    trainer = anakin.make_trainer(small, env)
    state = jax.jit(trainer.init)(jax.random.key(0))
    model = make_model(small, env.spec)
    unroll = jax.jit(
        lambda driver, key: anakin.generate_unroll(env, model, state.learner.target, driver, (), key, small.hyper, 64)
    )
    sequence = unroll(state.driver, jax.random.key(1))[2]
    reward, discount = np.asarray(sequence.reward), np.asarray(sequence.discount)
    assert set(np.unique(discount)) == {-1.0, 0.0}
    assert set(np.unique(reward)) == {0.0, 1.0}  # who moves last has won, or filled the board
    assert (discount[reward == 1] == 0).all()
    np.testing.assert_array_equal(sequence.obs.first[1:], discount == 0)
    legal = np.take_along_axis(np.asarray(sequence.obs.legal[:-1]), np.asarray(sequence.action)[..., None], axis=-1)
    assert legal.all()


def test_a_random_opening_comes_before_the_players_own_moves() -> None:
    env = make_env(config())
    first_legal = episodes.Player(lambda num: (), lambda state, obs, memory, key: (jnp.argmax(obs.legal, -1), memory))
    players = (episodes.after_opening(first_legal, 2),) * 2
    state = jax.jit(lambda key: episodes.start(env, players, key, 50))(jax.random.key(0))
    advance = jax.jit(lambda state: episodes.advance(env, players, state))
    boards = []
    for _ in range(3):
        boards.append(np.asarray(state.obs.legal))
        state = advance(state)
    played = [np.argmax(before & ~after, axis=-1) for before, after in itertools.pairwise(boards)]
    assert all(len(set(moves.tolist())) > 5 for moves in played)
    third = np.asarray(state.obs.prev_action)
    np.testing.assert_array_equal(third, np.argmax(boards[2], axis=-1))
