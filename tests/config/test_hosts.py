"""Under which names the page may be asked for."""

from pathlib import Path

import pytest

from flyball.config.planning import read_plan


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ("", ()),
        ("http: {hosts: [a.example]}", ("a.example",)),
        ("alerts: {url: 'https://Fly.example:8443/x'}", ("fly.example",)),
        ("http: {hosts: [a.example]}\nalerts: {url: 'https://a.example'}", ("a.example",)),
        ("http: {hosts: [a.example]}\nalerts: {url: 'https://b.example'}", ("a.example", "b.example")),
        ("alerts: {url: 'https://[x'}", ()),
    ],
)
def test_links_lead_to_a_known_name(tmp_path: Path, given: str, hosts: tuple[str, ...]) -> None:
    """The name that links in alerts use is one that the page is known by, without saying so twice."""
    file = tmp_path / "flyball.yaml"
    file.write_text(f"units: {{a: {{command: 'true'}}}}\n{given}\n")
    plan, _ = read_plan(file, {})
    assert plan.http.hosts == hosts
