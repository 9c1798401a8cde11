"""Files for those who run it elsewhere: they are read by nobody before it matters, so here."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from flyball.config import load

ROOT: Final = Path(__file__).parent.parent
FLEET: Final = ROOT / "deploy" / "kubernetes" / "fleet.yaml"


def _parts() -> dict[str, dict[str, Any]]:
    return {part["kind"]: part for part in yaml.safe_load_all(FLEET.read_text())}


def test_kubernetes_restarts_nothing() -> None:
    """The pods of the fleet and of the agent in the how-to are never restarted: flyball does that, and counts it."""
    pod = _parts()["Job"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    (one,) = [yaml.safe_load(text.partition("```")[0]) for text in page.split("```yaml")[1:]]
    assert one["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert one["spec"]["backoffLimit"] == 0


def test_the_settings_of_the_fleet_are_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the manifest gives to its pods can be read, with the variables that it sets."""
    file = tmp_path / "flyball.yaml"
    file.write_text(_parts()["ConfigMap"]["data"]["flyball.yaml"])
    (container,) = _parts()["Job"]["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value", "postgresql://flyball:secret@postgres/flyball") for one in container["env"]}
    env["FLYBALL_HOST__NAME"] = "flyball-0-abcde"
    settings = load(file, env=env)
    assert not settings.lacking
    assert settings.host.name == "flyball-0-abcde"
    assert settings.store.startswith("postgresql://")
    assert "FLYBALL_DATABASE" in settings.withheld
