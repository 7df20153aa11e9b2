"""Settings of the agent: numbers that may be traced, the grounded loss, and self-consistency."""

from numbers import Real
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PlainValidator

from purejax_sc.config.base import MOST, Fraction, NonNegative, Positive, Repeats, Section, names_row, row
from purejax_sc.config.words import quote
from purejax_sc.types import Gates

UPDATES = "purejax_sc.agent.consistency:UPDATES"
CONTROLS = "purejax_sc.agent.consistency:CONTROLS"


def _read_gates(value: Any) -> Gates | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(map(_is_gate, value)):
        raise ValueError(
            f"hyper.gates={quote(value)}: give three numbers from 0 to 1 (target, value, model), as in [1, 0.5, 0]"
        )
    return Gates(*map(float, value))


def _is_gate(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1


class Hyper(NamedTuple):
    """Numbers that may be traced, hence swept by `vmap`. No Python branch may depend on them."""

    learning_rate: NonNegative = 3e-4  # decays linearly to 0 over training
    discount: Fraction = 0.995  # gamma; the sign of a two-player game comes from the environment
    lambda_: Fraction = 0.95  # L5: Retrace's or V-trace's trace on real data
    target_rate: Fraction = 0.1  # alpha_target: share of the online network per update
    pg_weight: NonNegative = 3.0  # 0 turns the policy gradient off ("Muesli-MPO")
    cmpo_weight: NonNegative = 1.0  # policy distillation at k = 0
    model_policy_weight: NonNegative = 1.0  # policy distillation at k >= 1
    value_weight: NonNegative = 0.25  # value at k = 0
    model_value_weight: NonNegative = 0.25  # value at k >= 1
    reward_weight: NonNegative = 1.0
    sc_weight: NonNegative = 0.25
    cmpo_clip: NonNegative = 1.0  # c: advantages are clipped to [-c, c] before the exponential
    # divides the advantages before the clip: the lower, the further CMPO moves the policy
    cmpo_temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    prior_behaviour: Fraction = 0.03  # share of the behaviour policy in the CMPO prior
    prior_uniform: Fraction = 0.003  # share of the uniform policy in the CMPO prior
    moment_decay: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.99  # beta_var
    moment_epsilon: NonNegative = 1e-12  # epsilon_var
    epsilon: Fraction = 0.0  # share of uniform actions in imagination
    explore: Fraction = 0.0  # share of uniform actions in acting, which the returns correct for
    latent_noise: Fraction = 0.0  # x: root latents are multiplied by U(1 - x, 1 + x)
    # of the SC update; None for those of sc.update, which are known when it is compiled
    gates: Annotated[Gates | None, PlainValidator(_read_gates)] = None


def read_hyper(value: Any) -> Any:
    """The numbers from a mapping; a list would give them by their order, which is nobody's business."""
    if not isinstance(value, dict | Hyper):
        raise ValueError(f"hyper={quote(value)}: give its keys and values, as in learning_rate: 1e-4, or leave it out")
    return value


class MuesliConfig(Section):
    """The grounded loss. Labels like L4 are those of the table of open questions in docs/algorithm.md."""

    unroll: Repeats = 5  # K
    returns: Literal["retrace", "vtrace"] = "retrace"
    expectation: Literal["sampled", "exact"] = "sampled"  # of q under the Retrace policy
    cmpo: Literal["sampled", "exact"] = "sampled"
    samples: Positive = 16  # actions per state for the sampled estimators
    bins: Annotated[int, Field(ge=3, le=MOST)] = 601
    # the support is [-bins_max, bins_max] in transformed units
    bins_max: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    value_transform: bool = True  # N8
    pg_scope: Literal["pg", "policy"] = "pg"  # L1: pg_weight multiplies the policy gradient alone, or all policy terms
    unroll_reduction: Literal["one_plus_mean", "sum", "mean"] = "one_plus_mean"  # L2
    value_target: Literal["corrected", "return", "state"] = "corrected"  # L4
    return_policy: Literal["prior", "online"] = "prior"  # L6
    actor: Literal["prior", "online"] = "prior"  # L7
    dynamics_gradient: Fraction = 0.5  # L9: gradient scale at the start of each model step
    clip_pg_ratio: bool = True  # L14
    pg_baseline: Literal["target", "online"] = "target"  # N3
    model_value: Literal["return", "root"] = "return"  # N9: target at k >= 1
    model_policy: Literal["cmpo", "distill"] = "cmpo"  # target at k >= 1; distill: the root policy, latents fixed
    adam_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-8
    update_clip: Annotated[float, Field(gt=0)] = 1.0  # after Adam's normalisation, before the learning rate


class ScConfig(Section):
    """Self-consistency. With update=none the rest has no effect: it is that of the updates it is compared with."""

    update: Annotated[str, names_row("sc.update", UPDATES, "none")] = "direct"
    unroll: Repeats = 3  # K
    policy: Annotated[str, names_row("sc.policy", CONTROLS)] = "pi"  # mu: what imagination does
    original_correction: bool = True  # policy original: V-trace weights for the replayed actions
    rollout_ratio: Annotated[float, Field(gt=0, le=MOST)] = 1.0  # imagined rollouts per state of the batch
    loss: Literal["cross_entropy", "distributional", "centred", "squared"] = "cross_entropy"  # L12
    # L3; per_step: each imagined step weighs as a model step along the data does (paper Eq. 2 and 8)
    reduction: Literal["mean", "sum", "per_step"] = "mean"
    target_network: bool = False  # it says the targets, in a rollout of its own, without noise
    include_last: bool = False  # L10: the term k = K
    include_root: bool = False  # the term k = 0, on the root value
    encoder_gradient: bool = True  # L11
    noise_on: Literal["none", "encoding", "model"] = "none"  # N7: what hyper.latent_noise multiplies

    @property
    def gates(self) -> Gates:
        """Those of the update. Raises ConfigError for update=none, which has none."""
        gates: Gates = row(UPDATES, self.update)
        return gates

    @property
    def control(self) -> Any:
        """The `agent.consistency.Control` of the imagination policy."""
        return row(CONTROLS, self.policy)
