"""`flyball schema`: what editors are told is what `flyball check` does."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest

from flyball.cli import main
from flyball.config import Settings, json_schema, load
from flyball.errors import SettingsError


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema())


def test_valid_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """It is JSON, and a JSON Schema of the draft that it names."""
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == json_schema()
    assert schema["$schema"] == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    jsonschema.Draft202012Validator.check_schema(schema)


def _properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for definition in (schema, *schema["$defs"].values()):
        yield from definition["properties"].items()


def test_everything_is_described() -> None:
    """Every key has a description and a default, and every section refuses what it does not know."""
    schema = json_schema()
    for name, value in _properties(schema):
        assert value.get("description"), name
        assert "default" in value, name
    for definition in (schema, *schema["$defs"].values()):
        assert definition["additionalProperties"] is False


def test_defaults_are_good() -> None:
    """What the schema gives as defaults it accepts, and so does `load`."""
    values = Settings().model_dump(mode="json", by_alias=True)
    _validator().validate(values)
    assert Settings.model_validate(values) == Settings()


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("{}", True),
        ("quarantine:", True),
        ("quarantine: {cooldown_ladder_seconds: []}", True),
        ("daemon: {sessionRecovery: {maxResumeAttempts: 0}}", True),
        ("daemon: {session_recovery: {max_resume_attempts: 0}}", True),
        ("restart_policy: {max_restarts: 4}", True),
        ("budget: {max_cost_per_session: 0.5, per_user: '10.25'}", True),
        ("budget: {tiers: {gold: 5}}", True),
        ("quarantine: {healthy_after_seconds: null}", True),
        ("quarentine: {}", False),
        ("rule: {timeout: 5}", False),
        ("rule: 5", False),
        ("rule: {timeout_seconds: soon}", False),
        ("rule: {timeout_seconds: 0}", False),
        ("rule: {timeout_seconds: -1}", False),
        ("rule: {timeout_seconds: true}", False),
        ("rule: {timeout_seconds: null}", False),
        ("graph: {max_rounds: 16}", False),
        ("graph: {max_rounds: 7.5}", False),
        ("graph: {convergence_threshold: 1}", False),
        ("stall: {profile: wild}", False),
        ("circuit_breaker: {labels: ['two words']}", False),
        ("budget: {max_cost_per_session: -1}", False),
        ("budget: {max_cost_per_session: lots}", False),
        ("budget: {per_user: true}", False),
        ("budget: {tiers: 5}", False),
        ("supervisor: {enabled: 1}", False),
        ("[]", False),
    ],
)
def test_schema_and_load_agree(text: str, good: bool, tmp_path: Path) -> None:
    """What the schema accepts `load` accepts, and what it refuses `load` refuses."""
    import yaml

    assert _validator().is_valid(yaml.safe_load(text)) is good
    file = tmp_path / "f.yaml"
    file.write_text(text)
    if good:
        load(file, env={})
    else:
        with pytest.raises(SettingsError):
            load(file, env={})
