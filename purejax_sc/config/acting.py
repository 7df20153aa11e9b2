"""Settings of acting: who chooses in training, and what a search says to the learner."""

from typing import Literal

from purejax_sc.config.base import Fraction, Positive, Section


class ActingConfig(Section):
    """Who acts in training, and on which states a search over the model teaches the policy (hyper.search_share)."""

    policy: Literal["network", "search"] = "network"
    """Who acts: the policy head, or what a Gumbel search over the model makes of it."""
    simulations: Positive = 16
    """Model steps of each search."""
    reanalyse: Fraction = 0.0
    """Share of a batch's sequences, the replayed ones first, whose states the target network searches anew."""

    @property
    def searches(self) -> bool:
        """Whether anything is searched in training."""
        return self.policy == "search" or self.reanalyse > 0
