"""The API of a real daemon, tried with whatever its description allows and does not allow."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.control.web.tokens import Tokens
from tests.daemon.site import Site

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
"""Not among them: that everything the description allows is accepted (an order may want a name or `all`, which the
description cannot say), and tries without a token (after ten of them there is a wait; tests of the gate try all)."""
UNTRIED = r"stream$|down$"
"""Streams have no end, and the daemon should have none before the test."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path, FLYBALL_HTTP__LISTEN="127.0.0.1:0")
    place.write({"web": {"command": "sleep 1000"}, "bad": {"command": "false"}})
    yield place
    place.clean()


@pytest.mark.slow
def test_whatever_is_asked(site: Site) -> None:
    """No answer is a fault of the server, and each is as described; then the daemon is as well as before."""
    site.flyball("up", "-d")
    where = json.loads((site.state / "http.json").read_text())["address"]
    admin = Tokens(site.state).named("admin")
    assert admin is not None
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{where}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {admin.token}", "--checks", ",".join(CHECKS)]
    command += ["--exclude-path-regex", UNTRIED, "--max-examples", "10", "--seed", "1", "--no-color"]
    command += ["--generation-database", "none"]
    done = subprocess.run(command, cwd=site.folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Traceback" not in site.log()
    assert set(site.status()) == {"web", "bad"}
    site.down()
