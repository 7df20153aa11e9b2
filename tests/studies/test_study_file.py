"""Studies as files: those that are shipped, and mistakes in one's own."""

from pathlib import Path

import pytest

from purejax_sc.config import ConfigError
from purejax_sc.config.sections import UPDATES, resolve
from purejax_sc.envs.atari_games import SCORES
from purejax_sc.studies.study_file import load_study, shipped

OWN = """
title: Mine
text: Two arms.
seeds: 2
environments:
  laptop: {Catch: smoke}
arms:
  none: {title: Muesli, words: sc.update=none}
  direct: {title: SC-Direct, words: sc.update=direct}
claims:
  - {claim: direct.auc > none.auc, says: It helps.}
"""


@pytest.fixture
def own(tmp_path: Path):
    def write(old: str = "", new: str = "") -> str:
        assert old in OWN
        path = tmp_path / "mine.yaml"
        path.write_text(OWN.replace(old, new) if old else OWN)
        return str(path)

    return write


def test_the_figures_of_the_paper_are_shipped() -> None:
    figures = {"fig2a", "fig2b", "fig3a", "fig3b", "fig3c", "fig4a", "fig4b", "fig5"}
    assert figures | {"unroll", "smoke", "minatar"} == set(shipped())


def test_the_benchmark_has_five_games_with_the_same_settings() -> None:
    study = load_study("minatar")
    assert len(study.configs) == 5
    assert len({str(row["direct"].model_copy(update={"env": ""})) for row in study.configs.values()}) == 1


@pytest.mark.parametrize("size", ["laptop", "paper"])
@pytest.mark.parametrize("name", sorted(set(shipped()) - {"smoke", "minatar"}))
def test_every_shipped_study_is_sound_in_both_sizes(name: str, size) -> None:
    study = load_study(name, size)
    assert study.claims
    assert study.file.figure
    for row in study.configs.values():
        assert len({str(config) for config in row.values()}) == len(row)  # no arm twice


def test_figure_2b_has_every_update_and_3b_every_game() -> None:
    updates = {config.sc.update for config in load_study("fig2b").configs["Breakout"].values()}
    assert updates == {"none", *resolve(UPDATES)}
    games = {env: row["none"].env for env, row in load_study("fig3b", "paper").configs.items()}
    assert games == {game: f"atari/{game}" for game in SCORES}


def test_words_of_an_arm_come_after_those_of_the_environment(own) -> None:
    study = load_study(own("Catch: smoke", "Catch: smoke sc.update=reverse train.num_envs=16"))
    assert [config.sc.update for config in study.configs["Catch"].values()] == ["none", "direct"]
    assert study.words("Catch", "direct") == "smoke sc.update=reverse train.num_envs=16 sc.update=direct"


def test_a_part_of_a_study_keeps_the_claims_of_its_arms() -> None:
    study = load_study("fig2b", envs=["Garnet"], arms=["none", "dyna"], seeds=3)
    assert (list(study.configs), study.arms, study.seeds) == (["Garnet"], ["none", "dyna"], 3)
    assert [claim.claim for claim in study.claims] == ["dyna.auc < none.auc"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Mine", "titel: Mine", "unknown key 'titel': did you mean 'title'"),
        ("seeds: 2", "seeds: 0", "seeds=0: Input should be greater"),
        ("title: Muesli,", "title: Muesli, word: a,", "unknown key 'arms.none.word'"),
        ("Catch: smoke", "Catch: smoka", "no configuration 'smoka'"),
        ("Catch: smoke", "Catch: seed=1", "no configuration 'seed=1'"),
        ("Catch: smoke", "../Catch: smoke", "environments.laptop"),
        ("direct.auc >", "direkt.auc >", "no arm 'direkt' .*did you mean 'direct'"),
        ("direct.auc >", "direct.final >", "is no claim: write it as in"),
        ("sc.update=direct", "sc.update=directed", "did you mean 'direct'"),
        ("  laptop: {Catch: smoke}", "  {}", "give environments, or tabular"),
    ],
)
def test_mistakes_are_named(own, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(own(old, new))


def test_settings_of_an_arm_must_have_an_effect(own) -> None:
    with pytest.raises(ConfigError, match=r"sc\.unroll has no effect with sc\.update=none"):
        load_study(own("sc.update=none}", "sc.update=none sc.unroll=4}"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": "paper"}, "this study has no size paper: choose laptop"),
        ({"arms": ["dirct"]}, "no arm 'dirct' in this study: did you mean 'direct'"),
        ({"envs": ["Pong"]}, "no environment 'Pong' in this study: known: Catch, Garnet"),
    ],
)
def test_what_a_study_has_not_is_named(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study("smoke", **options)


def test_an_unknown_study_is_named() -> None:
    with pytest.raises(ConfigError, match="no study 'fig9': give a file, or one of fig2a"):
        load_study("fig9")
