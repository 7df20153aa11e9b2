"""Options of the tabular study: the paper's numbers, and the readings that have to be chosen."""

from collections.abc import Iterable
from typing import Annotated, Literal

import pydantic
from pydantic import Field

from purejax_sc.config import ConfigError, Fraction, NonNegative, Positive, Repeats, Section, read, split_words
from purejax_sc.config.errors import explain, quote
from purejax_sc.config.sections import UPDATES, names_row, row
from purejax_sc.tabular.learner import Variant
from purejax_sc.types import Gates

ModelKind = Literal["mle", "ve"]
Update = Annotated[str, names_row("updates", UPDATES, "none")]

NO_GATES = Gates(0.0, 0.0, 0.0)  # planning moves nothing: the model-free baseline

LISTS = ("models", "updates")  # options that take a comma list


class TabularOptions(Section):
    """The tabular study: methods, step sizes, and readings of the paper.

    One experiment. Defaults are the paper's numbers; docs/tabular.md tells how the readings were chosen.
    """

    models: tuple[ModelKind, ...] = ("mle", "ve")
    """Grounding of the transition model: maximum likelihood, or value equivalence."""
    updates: tuple[Update, ...] = ("none", "dyna", "direct", "reverse", "residual")
    """The methods; none is the model-free baseline."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the first replica; each has its own MDP, initial tables and data."""
    iterations: Positive | None = None
    """Iterations of each replica; null for 12,000, and 3,000 in the noise study."""
    log_every: Positive = 100
    """Iterations from one logged point to the next."""
    states: Annotated[int, Field(ge=2, le=1_000)] = 20
    """|S|: states of each MDP."""
    actions: Positive = 4
    """|A|: actions of each MDP."""
    discount: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """gamma of the MDPs."""
    epsilon: Fraction = 0.1
    """Control: share of uniform actions."""
    alpha_td: NonNegative = 0.03
    """Rate of the value, by TD(0), and of the reward."""
    alpha_mle: NonNegative = 1.0
    """Rate of an MLE model's logits."""
    alpha_ve: NonNegative = 3.0
    """Rate of a VE model's logits."""
    alpha_sc_mle: NonNegative | None = None
    """Rate of the SC step of an MLE model; null for 10 as printed, but 1 in control, where 10 is not stable."""
    alpha_sc_ve: NonNegative = 0.3
    """Rate of the SC step of a VE model."""
    batch: Positive = 8
    """Transitions per iteration."""
    unroll: Repeats = 2
    """K: steps of the model in planning, and squared errors of the SC loss, those of k = 0 .. K - 1."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> "TabularOptions":
        for name in LISTS:
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}={','.join(map(str, values))} must name at least one, and none twice")
        return self


def parse(overrides: Iterable[str]) -> TabularOptions:
    """Return the options of KEY=VALUE words. Raises ConfigError."""
    chosen = {key: [read(text, key) for text in texts] for key, texts in split_words(overrides).items()}
    for key, values in chosen.items():
        if key not in LISTS and len(values) > 1:
            raise ConfigError(f"{key}={quote(values)}: {key} takes one value: run the others apart")
    words = {key: tuple(values) if key in LISTS else values[0] for key, values in chosen.items()}
    try:
        return TabularOptions.model_validate(words)
    except pydantic.ValidationError as error:
        raise ConfigError(explain(error, lambda path: list(TabularOptions.model_fields))) from None


def variant(options: TabularOptions, model: ModelKind, update: Update, control: bool = False) -> Variant:
    """Return the numbers of one method.

    The paper does not say how the SC loss is reduced, and no single reduction makes both of its rates meaningful. It is
    a mean over start states and terms for the value, the reward and an MLE model, and half the sum for a VE model.
    """
    mean = 1.0 / (options.states * options.unroll)
    mle = (1.0 if control else 10.0) if options.alpha_sc_mle is None else options.alpha_sc_mle
    planning = {"mle": mle, "ve": options.alpha_sc_ve}[model]
    return Variant(
        gates=NO_GATES if update == "none" else row(UPDATES, update),
        discount=options.discount,
        epsilon=options.epsilon,
        td=options.alpha_td,
        reward=options.alpha_td,  # the paper gives no rate of its own
        mle=options.alpha_mle * (model == "mle"),
        ve=options.alpha_ve * (model == "ve"),
        plan_v=mean * options.alpha_td,
        plan_r=mean * options.alpha_td,
        plan_p=planning * (mean if model == "mle" else 0.5),
    )
