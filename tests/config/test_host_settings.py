"""Where the memory of a fleet is, and what a host is to it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flyball.config import load
from flyball.config.planning import read_plan
from flyball.config.units import Unit
from flyball.core.time import SECOND
from flyball.errors import SettingsError
from flyball.store.address import without_password

UNITS: dict[str, Any] = {"a": {"command": ["true"]}}


def _file(folder: Path, **given: Any) -> Path:
    path = folder / "flyball.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/flyball", "postgresql://db/flyball"),
        ("postgresql://ann@db:5433/flyball", "postgresql://ann@db:5433/flyball"),
        ("postgresql://ann:s3cret@db/flyball", "postgresql://ann:***@db/flyball"),
        ("postgresql://ann:s3:cret@db/flyball", "postgresql://ann:***@db/flyball"),
        ("postgresql://db/flyball?user=ann&password=s3cret", "postgresql://db/flyball?user=ann&password=***"),
        (
            "postgresql:///flyball?sslpassword=s3cret&host=/run",
            "postgresql:///flyball?sslpassword=***&host=/run",
        ),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str, tmp_path: Path) -> None:
    """Not where the address of the store is told, and not where the settings are shown."""
    settings = load(_file(tmp_path, store=url, units=UNITS), env={})
    assert settings.store == url
    assert without_password(url) == shown
    assert [value.value for value in settings.effective() if value.key == "store"] == [shown]
    assert "cret" not in repr(settings)
    assert "cret" not in repr(read_plan(tmp_path / "flyball.yaml", {})[0])


@pytest.mark.parametrize(
    "given", ["mysql://db/x", "db/x", "postgresql://db:port/x", "postgresql://a b/x", 7, ["postgresql://db/x"]]
)
def test_no_store(given: object, tmp_path: Path) -> None:
    """What is no address of a database is refused, with its place and an example."""
    match = r"flyball\.yaml:[12]:\d: store is (something else|a list); it should be a URL such as postgresql://user@host/database"
    with pytest.raises(SettingsError, match=match):
        load(_file(tmp_path, store=given), env={})


def test_the_address_comes_from_a_variable_that_units_do_not_get(tmp_path: Path) -> None:
    """`${DATABASE}` is filled in, for us alone: who has it could release himself."""
    env = {"DATABASE": "postgresql://ann:s3cret@db/flyball", "OTHER": "x"}
    plan, _ = read_plan(_file(tmp_path, store="${DATABASE}", units=UNITS), env)
    assert plan.store == env["DATABASE"]
    assert plan.withheld == ("DATABASE",)
    plan, _ = read_plan(_file(tmp_path, units=UNITS), {"FLYBALL_STORE": env["DATABASE"]})
    assert plan.store == env["DATABASE"]
    assert plan.withheld == ("FLYBALL_STORE",)


def test_without_one_it_is_a_file(tmp_path: Path) -> None:
    """One machine needs no database."""
    plan, _ = read_plan(_file(tmp_path, units=UNITS), {})
    assert (plan.store, plan.host.name, plan.host.lease) == ("", "", 15 * SECOND)


def test_a_host_is_told_by_its_environment(tmp_path: Path) -> None:
    """All hosts may share one file: what differs between them comes from their environment."""
    env = {"FLYBALL_HOST__NAME": "one", "FLYBALL_HOST__LABELS": '{"gpu": "a100"}', "FLYBALL_HOST__LEASE_SECONDS": "3"}
    plan, _ = read_plan(_file(tmp_path, units=UNITS), env)
    assert (plan.host.name, plan.host.labels, plan.host.lease) == ("one", {"gpu": "a100"}, 3 * SECOND)


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "a/b"), ("name", "-a"), ("lease_seconds", 0.5), ("lease_seconds", 4000), ("units_max", -1)],
)
def test_a_host_that_cannot_be(key: str, value: object, tmp_path: Path) -> None:
    """A name with a slash would be another holder of runs; a lease that is too short nobody could renew."""
    with pytest.raises(SettingsError, match=rf"host\.{key}"):
        load(_file(tmp_path, host={key: value}), env={})


def test_where_it_runs_is_no_part_of_what_it_is() -> None:
    """A unit that failed does not become another one by being moved; and settings of before hosts give the same
    revision."""
    here, there = Unit(name="a", command=("x",)), Unit(name="a", command=("x",), host="b", host_labels={"gpu": "1"})
    assert here.revision == there.revision == "1b705369d4f7ece7"
