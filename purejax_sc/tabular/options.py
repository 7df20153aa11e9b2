"""Options of the tabular study: the paper's numbers, and a name for every reading that the paper leaves open.

`parse` reads KEY=VALUE with comma lists and gives one `TabularOptions` per combination; `variant` turns one into
numbers.
"""

import itertools
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
from pydantic import Field

from purejax_sc.config import ConfigError, Fraction, NonNegative, Positive, Section, read, split_words
from purejax_sc.config.errors import explain, quote
from purejax_sc.config.sections import MOST, UPDATES, names_row, row
from purejax_sc.memory import free_on_host, refuse_beyond
from purejax_sc.tabular.learner import Readings, Variant
from purejax_sc.types import Gates

ModelKind = Literal["mle", "ve"]
Update = Annotated[str, names_row("updates", UPDATES, "none")]
Reduction = Literal["mean", "half_sum", "sum"]

NOISE_UPDATES = ("dyna", "direct")
NO_GATES = Gates(0.0, 0.0, 0.0)  # planning moves nothing: the model-free baseline


# What the paper prints. Of what it leaves open, docs/tabular.md says which reading is the default.
PAPER: dict[str, Any] = {
    "models": ("mle", "ve"),
    "updates": ("none", "dyna", "direct", "reverse", "residual"),
    "states": 20,
    "actions": 4,
    "discount": 0.99,
    "epsilon": 0.1,
    "alpha_td": 0.03,
    "alpha_mle": 1.0,
    "alpha_ve": 3.0,
    "alpha_sc_mle": 10.0,
    "alpha_sc_ve": 0.3,
    "batch": 8,
    "unroll": 2,
    "terms": "K+1",
    "ve_target": "policy",
    "successors": "state",
}


class Plan(Section):
    """What is run, over whatever else is varied."""

    models: tuple[ModelKind, ...] = ("mle", "ve")
    """How the transition model is grounded: by maximum likelihood, or by value equivalence."""
    updates: tuple[Update, ...] = ("none", "dyna", "direct", "reverse", "residual")
    """The methods; none is the model-free baseline."""
    reward_sigmas: tuple[NonNegative, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Noise study: the reward table starts at the true one + sigma N(0, 1)."""
    value_sigmas: tuple[NonNegative, ...] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    """Noise study: the value table starts at v_pi + sigma N(0, 1)."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the first replica; each has its own MDP, initial tables and data."""
    iterations: Positive | None = None
    """Of each replica; null for 12,000, and 3,000 in the noise study."""
    log_every: Positive = 100
    """Iterations from one logged point to the next."""
    states: Annotated[int, Field(ge=2, le=MOST)] = 20
    """|S|: states of each MDP."""
    actions: Positive = 4
    """|A|: actions of each MDP."""
    discount: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """gamma of the MDPs."""


class Numbers(Section):
    """Step sizes and the like. A comma list of any of them is one more axis of the same compiled program."""

    epsilon: Fraction = 0.1
    """Control: share of uniform actions."""
    alpha_td: NonNegative = 0.03
    """Rate of the value, by TD(0)."""
    alpha_r: Fraction | None = None
    """Rate of the reward; null for alpha_td. 1 copies the reward, close to the rule as printed."""
    alpha_mle: NonNegative = 1.0
    """Rate of an MLE model's logits."""
    alpha_ve: NonNegative = 3.0
    """Rate of a VE model's logits."""
    alpha_sc_mle: NonNegative | None = None
    """Rate of the SC step of an MLE model; null for 10 as printed, but 1 in control, where 10 is not stable."""
    alpha_sc_ve: NonNegative = 0.3
    """Rate of the SC step of a VE model."""
    alpha_sc: NonNegative | None = None
    """Instead of alpha_sc_mle and alpha_sc_ve: a multiple of alpha_mle and of alpha_ve."""
    grounded_reduction: Literal["sum", "mean"] = "sum"
    """Of the grounded losses, over the batch."""
    sc_value_reduction: Reduction = "mean"
    """Factor of the SC step of the value and the reward: 1 / (states x terms), 1/2 or 1."""
    sc_mle_reduction: Reduction = "mean"
    """The same factor as sc_value_reduction, of an MLE model's logits."""
    sc_ve_reduction: Reduction = "half_sum"
    """The same factor as sc_value_reduction, of a VE model's logits."""
    sc_value_rate: Literal["td", "sc"] = "td"
    """Which rate moves the value in the SC step: alpha_td, or that of the model's SC step."""


class Shape(Section):
    """What decides the shape of the program: every combination of a sweep is compiled apart."""

    batch: Positive = 8
    """Transitions per iteration."""
    unroll: Annotated[int, Field(ge=0, le=1_000)] = 2
    """K: steps of the model in planning."""
    terms: Literal["K", "K+1"] = "K"
    """Squared errors of the SC loss: of k = 0 .. K - 1, or 0 .. K."""
    expectation: Literal["inside", "outside"] = "inside"
    """Of the SC loss, in relation to the square: the error of the expected rollout squared, or expected squares."""
    order: Literal["joint", "value_first"] = "joint"
    """Of the SC step: value, reward and model at once, or the value first and the others at its new values."""
    ve_target: Literal["action", "policy"] = "action"
    """The VE loss is of the action that was taken, or averages over the policy."""
    sampling: Literal["uniform", "trajectories", "chain"] = "uniform"
    """Where transitions come from: any states, as many trajectories of the policy as batch says, or only one."""
    successors: Literal["state", "state_action"] = "state"
    """Garnet: what has a subset of successors of its own."""
    policy: Literal["uniform", "dirichlet", "deterministic"] = "uniform"
    """That evaluation follows: uniform in every state, or in each replica drawn from a Dirichlet, or deterministic."""


class TabularOptions(Shape, Numbers, Plan):
    """The tabular study: what is run, step sizes, and readings of what the paper leaves open.

    One experiment. Defaults are the paper's numbers; docs/tabular.md tells how the readings were chosen.
    """

    @pydantic.model_validator(mode="after")
    def _check(self) -> "TabularOptions":
        if self.terms == "K" and self.unroll == 0:
            raise ValueError("terms=K with unroll=0 leaves the SC loss without a term: set unroll=1 or terms=K+1")
        sizes = {name: getattr(self, name) for name in ("states", "actions", "batch")}
        tables = 4 * self.states * (self.states * self.actions + self.batch)  # bytes
        refuse_beyond(free_on_host(), "this machine", "the tables of one replica", tables, sizes)
        for name in LISTS:
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}={','.join(map(str, values))} must name at least one, and none twice")
        return self

    def readings(self, control: bool) -> Readings:
        terms = self.unroll + (self.terms == "K+1")
        trajectories = {"uniform": 0, "trajectories": self.batch, "chain": 1}[self.sampling]
        return Readings(control, terms, self.expectation, self.order, self.ve_target, trajectories)


LISTS = ("models", "updates", "reward_sigmas", "value_sigmas")


class Setting(NamedTuple):
    """One combination of swept values. label: as in `alpha_sc=0.3 order=joint`; empty if nothing is swept."""

    label: str
    options: TabularOptions

    @property
    def program(self) -> TabularOptions:
        """What the settings of one compiled program share: the options without the numbers."""
        return self.options.model_copy(update=Numbers().model_dump())


def parse(overrides: Iterable[str]) -> list[Setting]:
    """The settings of KEY=VALUE words; comma lists are swept, all combinations. Raises ConfigError."""
    chosen = {key: [read(text, key) for text in texts] for key, texts in split_words(overrides).items()}
    fixed = {key: tuple(values) if key in LISTS else values[0] for key, values in chosen.items()}
    swept = {key: values for key, values in chosen.items() if key not in LISTS and len(values) > 1}
    for key, values in swept.items():
        if key in Plan.model_fields:
            raise ConfigError(f"{key} takes one value: replicas of different {key} are not comparable; run them apart")
        if any(value in values[:i] for i, value in enumerate(values)):
            raise ConfigError(f"{key}={quote(values)} repeats a value: drop it")
    settings = []
    for point in itertools.product(*swept.values()):
        combination = dict(zip(swept, point, strict=True))
        label = " ".join(f"{key}={value}" for key, value in combination.items())
        settings.append(Setting(label, _validated(fixed | combination)))
    return settings


def variant(options: TabularOptions, model: ModelKind, update: Update, control: bool = False) -> Variant:
    """The numbers of one method."""
    terms = options.readings(control=False).terms
    scale = {"mean": 1.0 / (options.states * terms), "half_sum": 0.5, "sum": 1.0}
    visit = 1.0 if options.grounded_reduction == "sum" else 1.0 / options.batch
    grounded = {"mle": options.alpha_mle, "ve": options.alpha_ve}[model]
    mle = (1.0 if control else 10.0) if options.alpha_sc_mle is None else options.alpha_sc_mle
    planning = {"mle": mle, "ve": options.alpha_sc_ve}[model]
    if options.alpha_sc is not None:
        planning = options.alpha_sc * grounded
    reward = options.alpha_td if options.alpha_r is None else options.alpha_r
    value_scale = scale[options.sc_value_reduction]
    return Variant(
        gates=NO_GATES if update == "none" else row(UPDATES, update),
        discount=options.discount,
        epsilon=options.epsilon,
        td=visit * options.alpha_td,
        reward=visit * reward,
        mle=visit * grounded * (model == "mle"),
        ve=visit * grounded * (model == "ve"),
        plan_v=value_scale * (options.alpha_td if options.sc_value_rate == "td" else planning),
        plan_r=value_scale * reward,
        plan_p=planning * scale[options.sc_mle_reduction if model == "mle" else options.sc_ve_reduction],
    )


def _validated(values: dict[str, Any]) -> TabularOptions:
    try:
        return TabularOptions.model_validate(values)
    except pydantic.ValidationError as error:
        raise ConfigError(explain(error, lambda path: list(TabularOptions.model_fields))) from None
