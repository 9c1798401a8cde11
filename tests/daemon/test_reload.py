"""`flyball reload`: only what changed, and only good settings."""

import os
import signal

from tests.daemon.site import Site, until

SLEEPS = {"command": "sleep 1000"}


def test_reload(site: Site) -> None:
    """Added units start, removed ones end, changed ones restart; the others are not touched."""
    site.write({"same": SLEEPS, "gone": SLEEPS, "other": SLEEPS})
    site.flyball("up", "-d")
    before = site.all_up("same", "gone", "other")
    site.write({"same": SLEEPS, "new": SLEEPS, "other": {"command": "sleep 2000"}})
    said = site.flyball("reload").stdout
    assert said.splitlines() == ["added: new", "removed: gone", "changed: other", "unchanged: 1"]
    after = site.all_up("same", "new", "other")
    assert after["same"] == before["same"]
    assert after["other"] != before["other"]
    assert site.flyball("reload").stdout == "unchanged: 3\n"
    assert site.running() == after


def test_reload_refused(site: Site) -> None:
    """A broken file is refused with its problems; the old settings stay, and nothing is touched. So it is by SIGHUP."""
    site.write({"a": SLEEPS})
    site.flyball("up", "-d")
    before = site.all_up("a")
    site.file.write_text("units: {a: {command: sleep 1, restart: perhaps}}\n")
    refused = site.flyball("reload", code=2)
    assert "units.a.restart" in refused.stderr
    assert "in force stay" in refused.stderr
    os.kill(site.ping()["guardian"], signal.SIGHUP)
    until(lambda: site.log().count("reload refused") == 2, "a word in the log")
    assert site.running() == before
    site.write({"a": SLEEPS, "b": SLEEPS})
    os.kill(site.ping()["guardian"], signal.SIGHUP)
    assert site.all_up("a", "b")["a"] == before["a"]


def test_reload_of_what_is_no_unit(site: Site) -> None:
    """Settings of the fleet itself are replaced, too: a breaker that is open stays so for as long as they say now."""
    del site.env["FLYBALL_CIRCUIT_BREAKER__FAILURE_THRESHOLD"]
    units = {"a": SLEEPS, "fails": {"command": "false", "restart": "never"}}
    breaker = {"failure_threshold": 1, "min_units": 1, "recovery_timeout_seconds": 600}
    site.write(units, circuit_breaker=breaker)
    site.flyball("up", "-d")
    [before] = until(lambda: site.ask("status")["fleet"]["breakers"], "an open breaker")
    site.write(units, circuit_breaker={**breaker, "recovery_timeout_seconds": 3600})
    site.ask("reload")
    [after] = site.ask("status")["fleet"]["breakers"]
    assert after["until"] - before["until"] == 3000


def test_reload_of_what_is_read_at_the_start(site: Site) -> None:
    """Where the page is does not change while the daemon runs; that is said as long as it holds, and not after it was
    put back."""
    del site.env["FLYBALL_HTTP__LISTEN"]
    site.write({"a": SLEEPS}, http={"listen": "off"})
    site.flyball("up", "-d")
    site.write({"a": SLEEPS}, http={"listen": "127.0.0.1:0"})
    assert "`http` changed" in site.flyball("reload").stderr
    assert "`http` changed" in site.log()
    assert not (site.state / "http.json").exists()
    site.write({"a": SLEEPS}, http={"listen": "off"})
    assert site.ask("reload")["later"] == ""


def test_commands_during_a_reload(site: Site) -> None:
    """While a unit takes its time to end, commands are answered, and an order to kill it is obeyed at once."""
    stubborn = {"command": ["sh", "-c", "trap 'touch told' TERM; echo up > up; while :; do sleep 0.02; done"]}
    site.write({"a": SLEEPS, "stubborn": {**stubborn, "cwd": str(site.folder), "grace": "1h"}})
    site.flyball("up", "-d")
    until((site.folder / "up").exists, "the start")
    site.write({"a": SLEEPS})
    os.kill(site.ping()["guardian"], signal.SIGHUP)
    until((site.folder / "told").exists, "the stop signal")
    assert site.status()["stubborn"]["running"]
    site.order("kill", "stubborn")
    site.all_up("a")
    until(lambda: "1 removed" in site.log(), "a word in the log")


def test_revision_clears(site: Site) -> None:
    """A changed definition clears a unit's failures: one that was quarantined runs."""
    site.write({"a": {"command": ["sh", "-c", "exit 1"]}})
    site.flyball("up", "-d")
    until(lambda: site.status()["a"]["state"] in ("quarantined", "halted"), "a hold")
    site.write({"a": SLEEPS})
    site.flyball("reload")
    site.all_up("a")
    assert "failures cleared by change" in site.flyball("events", "a").stdout


def test_no_daemon(site: Site) -> None:
    """Without a daemon, `reload` and `start` say so."""
    site.write({"a": SLEEPS})
    assert "no daemon" in site.flyball("reload", code=2).stderr
    assert "no daemon" in site.flyball("start", "a", code=None).stderr
