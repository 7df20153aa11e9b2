"""Settings of the agent: numbers that may be traced, the grounded loss, and self-consistency."""

from numbers import Real
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema

from purejax_sc.config.base import MOST, Fraction, Natural, NonNegative, Repeats, Section, names_row, row
from purejax_sc.config.words import quote
from purejax_sc.types import Gates

UPDATES = "purejax_sc.agent.consistency:UPDATES"
CONTROLS = "purejax_sc.agent.consistency:CONTROLS"


def _read_gates(value: Any) -> Gates:
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(map(_is_gate, value)):
        raise ValueError(
            f"hyper.gates={quote(value)}: give three numbers from 0 to 1 (target, value, model), as in [1, 0.5, 0]"
        )
    return Gates(*map(float, value))


def _is_gate(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1


_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
OwnGates = Annotated[Gates, PlainValidator(_read_gates), WithJsonSchema({"type": "array", "items": _SHARE})]


class Hyper(NamedTuple):
    """Numbers that may be traced, hence swept by `vmap`. No Python branch may depend on them."""

    learning_rate: NonNegative = 3e-4
    """Of Adam; decays linearly to 0 over training."""
    discount: Fraction = 0.995
    """gamma; the sign of a two-player game comes from the environment."""
    lambda_: Fraction = 0.95
    """L5: Retrace's or V-trace's trace on real data."""
    target_rate: Fraction = 0.1
    """alpha_target: share of the online network that the target network takes over per update."""
    pg_weight: NonNegative = 3.0
    """Weight of the policy gradient; 0 turns it off ("Muesli-MPO")."""
    cmpo_weight: NonNegative = 1.0
    """Weight of the policy's distillation to CMPO at k = 0."""
    model_policy_weight: NonNegative = 1.0
    """Weight of the policy's distillation after k >= 1 model steps."""
    value_weight: NonNegative = 0.25
    """Weight of the value loss at k = 0."""
    model_value_weight: NonNegative = 0.25
    """Weight of the value loss after k >= 1 model steps."""
    reward_weight: NonNegative = 1.0
    """Weight of the model's reward loss."""
    reconstruction_weight: NonNegative = 0.2
    """Weight of the losses by which states of the model show the observation, and which actions are legal."""
    sc_weight: NonNegative = 0.25
    """Weight of the self-consistency loss."""
    cmpo_clip: NonNegative = 1.0
    """c: advantages are clipped to [-c, c] before CMPO's exponential."""
    cmpo_temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Divides the advantages before the clip: the lower, the further CMPO moves the policy."""
    prior_behaviour: Fraction = 0.03
    """Share of the behaviour policy in the CMPO prior."""
    prior_uniform: Fraction = 0.003
    """Share of the uniform policy in the CMPO prior."""
    epsilon: Fraction = 0.0
    """Share of uniform actions in imagination, with sc.policy=epsilon."""
    explore: Fraction = 0.0
    """Share of uniform actions in acting, which the returns correct for."""
    latent_noise: Fraction = 0.0
    """x: what sc.noise_on names is multiplied by U(1 - x, 1 + x)."""
    gates: OwnGates | None = None
    """Of the SC update (target, value, model); null for those of sc.update, known when it is compiled."""


def read_hyper(value: Any) -> Any:
    """The numbers from a mapping; a list would give them by their order, which is nobody's business."""
    if not isinstance(value, dict | Hyper):
        raise ValueError(f"hyper={quote(value)}: give its keys and values, as in learning_rate: 1e-4, or leave it out")
    return value


class MuesliConfig(Section):
    """The grounded loss. Labels such as L5 refer to the readings chosen in docs/algorithm.md."""

    unroll: Repeats = 5
    """K: steps of the model along the real actions."""
    returns: Literal["retrace", "vtrace"] = "retrace"
    """How returns are corrected for the policy that acted."""
    num_action_samples: Natural = 16
    """Actions per state from which CMPO and Retrace's expected q are estimated; 0: exact sums over all actions."""
    bins: Annotated[int, Field(ge=3, le=MOST)] = 601
    """Atoms of the distributions of value and reward."""
    bins_max: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    """Their support is [-bins_max, bins_max] in transformed units."""
    model_policy: Literal["cmpo", "distill"] = "cmpo"
    """Policy target at k >= 1: CMPO, or with distill the root policy there, latents fixed."""
    reconstruct: Annotated[int, Field(ge=0, le=MOST)] = 0
    """N10: first planes of those read that states of the model show, empty beyond the end; 0 as in the papers."""
    absorbing: Literal["zero", "outcome"] = "zero"
    """N11: how episodes end in the model: by a reward and then nothing, or, with outcome, by a value that stays."""
    legal: bool = False
    """N12: states of the model say which actions are legal, and search and imagination keep to those."""


class ScConfig(Section):
    """Self-consistency. With update=none the rest has no effect: it is that of the updates it is compared with."""

    update: Annotated[str, names_row("sc.update", UPDATES, "none")] = "direct"
    """Where the gradients of self-consistency flow; none is the Muesli baseline."""
    unroll: Repeats = 3
    """K: imagined steps."""
    policy: Annotated[str, names_row("sc.policy", CONTROLS)] = "pi"
    """mu: who acts in imagination: the agent, in part at random, never as it first did, or as it really did."""
    rollout_ratio: Annotated[float, Field(gt=0, le=MOST)] = 1.0
    """Imagined rollouts per state of the batch."""
    loss: Literal["cross_entropy", "distributional"] = "cross_entropy"
    """L12: how a value is compared with its target."""
    include_last: bool = False
    """L10: the term k = K."""
    noise_on: Literal["none", "encoding"] = "none"
    """N7: what hyper.latent_noise multiplies."""

    @property
    def gates(self) -> Gates:
        """Those of the update. Raises ConfigError for update=none, which has none."""
        gates: Gates = row(UPDATES, self.update)
        return gates

    @property
    def control(self) -> Any:
        """The `agent.consistency.Control` of the imagination policy."""
        return row(CONTROLS, self.policy)
