"""The whole way on a terminal, with a real daemon: something fails, is seen, put right, and written down."""

import json
from pathlib import Path

from tests.daemon.site import Site, until


def test_from_a_failure_to_its_end(tmp_path: Path) -> None:
    """S0-37, S0-39, S0-41: A unit is quarantined; status says what to type, and what is typed puts it right."""
    site = Site(tmp_path)
    site.write({"web": {"command": ["sh", "-c", "test -e good || exit 3; exec sleep 600"], "cwd": str(tmp_path)}})
    site.flyball("up", "-d")
    try:
        until(lambda: site.ask("problems")["problems"], "something that needs a person")
        assert "Needs you (1):" in site.flyball("status", "--check", code=1).stdout
        [problem] = json.loads(site.flyball("problems", "--json").stdout)["problems"]
        typed = site.flyball("status").stdout.partition("$ flyball ")[2].partition("\n")[0].split()
        assert typed[0] in ("reset", "resume")
        site.flyball("ack", "web")
        (tmp_path / "good").touch()
        site.flyball(*typed)
        until(lambda: site.ask("unit", unit="web")["running"], "that it runs")
        site.flyball("status", "--check", code=0)
        assert problem["unit"] == "web"
        verbs = [json.loads(line)["verb"] for line in site.flyball("audit", "--json").stdout.splitlines()]
        assert verbs == ["acknowledge", typed[0]]
    finally:
        site.clean()
