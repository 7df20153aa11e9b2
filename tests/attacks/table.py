"""All attacks. A family is a file beside this one, and adds its rows here."""

from attacks import configs, damage, extremes, go, kills, levels, limits
from attacks.base import Attack

# The quick ones first, so that even a short campaign has made them.
ATTACKS: tuple[Attack, ...] = (
    *configs.ATTACKS,
    *levels.ATTACKS,
    *go.ATTACKS,
    *damage.ATTACKS,
    *extremes.ATTACKS,
    *limits.ATTACKS,
    *kills.ATTACKS,
)
