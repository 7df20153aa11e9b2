"""Keys: each has a meaning, and what is shown of them is what the code says."""

import keys_page
import pytest

from purejax_sc import config
from purejax_sc.cli.commands import main
from purejax_sc.config import NetworkConfig, reference
from purejax_sc.config.reference import TABULAR, Key
from purejax_sc.tabular.options import TabularOptions


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, str], Key]:
    return {(key.name, key.owner): key for key in reference.read_keys()}


def test_the_page_is_what_the_code_says() -> None:
    assert keys_page.FILE.read_text(encoding="utf-8") == keys_page.page(), "run: python tools/keys_page.py"


def test_every_key_and_section_has_a_meaning(known: dict[tuple[str, str], Key]) -> None:
    assert [key.name for key in known.values() if not key.meaning.endswith((".", ")"))] == []
    sections = {**reference.sections(), TABULAR: TabularOptions}
    assert [name for name, section in sections.items() if not keys_page.summary(section)] == []


def test_every_setting_is_a_key(known: dict[tuple[str, str], Key]) -> None:
    names = {name for name, owner in known if owner != TABULAR}
    assert {name for name, owner in known if owner == TABULAR} == set(TabularOptions.model_fields)
    shipped = (config.to_tree(config.load(path.stem)) for path in config.CONFIG_DIR.glob("*.yaml"))
    assert {name for tree in shipped for name in config.files.flat(tree)} <= names


@pytest.mark.parametrize(
    ("name", "owner", "default", "values"),
    [
        ("env", "", "", "text"),
        ("hyper.gates", "", "null", "list of number from 0 to 1 or null"),
        ("hyper.moment_decay", "", "0.99", "number from 0 below 1"),
        ("muesli.unroll", "", "5", "integer above 0 to 1_000"),
        ("sc.rollout_policy", "", "pi", "pi, epsilon, avoid_first, original, module:name"),
        ("env_options.mdp_seed", "", "0", "integer from 0"),
        ("network.strides", "network.kind=impala", "null", "list of integer above 0 or null"),
        ("network.kind", "", "mlp", "mlp, cnn, impala, resnet, muzero, module:name"),
        ("models", TABULAR, "[mle, ve]", "list of mle, ve"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_key(
    known: dict[tuple[str, str], Key], name: str, owner: str, default: str, values: str
) -> None:
    assert known[name, owner][:4] == (name, owner, default, values)


def test_sections_of_the_users_own_have_meanings() -> None:
    class Own(NetworkConfig):
        width: int = 3
        """Of the latent,
        in units."""
        depth: int = 4  # a comment is none

    assert reference.meanings(Own) == reference.meanings(NetworkConfig) | {"width": "Of the latent, in units."}


def test_keys_are_found_by_name_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "NOISE"]) == 0
    printed = capsys.readouterr().out.splitlines()
    of_configurations, of_study = ["sc.noise_on", "hyper.latent_noise"], printed[4:]
    assert [line.split()[0] for line in printed[:4:2]] == of_configurations
    assert printed[:2] == [
        "sc.noise_on = none   [none, encoding]",
        "    N7: what hyper.latent_noise multiplies.",
    ]
    assert of_study == [
        "iterations = null   [integer above 0 or null] [purejax-sc tabular]",
        "    Iterations of each replica; null for 12,000, and 3,000 in the noise study.",
    ]
    assert main(["keys", "no such"]) == 2
    assert capsys.readouterr().err == (
        "purejax-sc: no key has 'no such' in its name or meaning: purejax-sc keys shows all\n"
    )
