"""Rules that change under a running daemon: what is good is applied by itself, what is not changes nothing, and people
are told."""

import json
import resource
from typing import Any

import pytest

from flyball.control.context import CommandError
from tests.daemon.rule_site import at_rest, exits, fire, journal, lines, rule_of, runs, starts
from tests.daemon.site import Site, until

pytestmark = pytest.mark.slow


def _names(site: Site) -> set[str]:
    """The rules in force: those of the past are shown as well."""
    return {rule["name"] for rule in site.ask("rules")["rules"] if rule["defined"]}


def _file(site: Site, name: str, **rules: Any) -> None:
    """A file in the folder of rules."""
    (site.folder / "rules").mkdir(exist_ok=True)
    (site.folder / "rules" / name).write_text(json.dumps(rules, indent=1))


def test_broken_then_mended(site: Site) -> None:
    """A broken file keeps the rules in force; `flyball status` and the log say what is wrong and where. As soon as it
    is mended it is applied, by itself."""
    site.write({}, rules={"a": runs(site, "echo old >> ran")})
    site.flyball("up", "-d")
    good = site.file.read_text()
    site.file.write_text(f"{good}\nrule:\n  timeout_seconds: never\n")
    told = until(lambda: site.ask("status")["trouble"], "a complaint")
    line = len(good.splitlines()) + 3
    assert f"flyball.yaml:{line}:" in told
    assert "rule.timeout_seconds" in told
    assert "The settings in force stay" in site.flyball("status", code=None).stdout
    assert f"flyball.yaml:{line}:" in site.log()
    fire(site, "a")
    at_rest(site, "a")
    assert lines(site, "ran") == ["old"]

    site.write({}, rules={"a": runs(site, "echo new >> ran"), "b": runs(site, "true")})
    until(lambda: _names(site) == {"a", "b"}, "the new rules")
    assert not site.ask("status")["trouble"]
    fire(site, "a")
    at_rest(site, "a")
    assert lines(site, "ran") == ["old", "new"]


def test_units_are_not_applied_by_themselves(site: Site) -> None:
    """More than rules changed: nothing is applied before somebody says so, and the log and the status tell."""
    site.write({}, rules={"a": runs(site, "true")})
    site.flyball("up", "-d")
    site.write({"u": {"command": "sleep 1000"}}, rules={"a": runs(site, "true"), "b": runs(site, "true")})
    until(lambda: "nothing is applied before `flyball reload`" in site.log(), "a word in the log")
    assert _names(site) == {"a"}
    assert site.running() == {}
    assert site.ask("status")["trouble"].startswith("More than rules changed in the settings; nothing is applied")
    assert site.flyball("reload").stdout.splitlines() == ["added: u", "added: b", "unchanged: 1"]
    site.all_up("u")
    assert _names(site) == {"a", "b"}
    assert not site.ask("status")["trouble"]


def test_changed_rule_begins_anew(site: Site) -> None:
    """S0-20: a changed rule's failures are cleared, and shown as such; so what waited is run. The fourth time a day a
    change clears nothing by itself: then a person does."""
    site.write({}, rules={"a": runs(site, "exit 1")}, quarantine={"max_failures_before_quarantine": 1})
    site.flyball("up", "-d")
    fire(site, "a")
    for number in (1, 2, 3):
        until(lambda number=number: len(exits(site, "a")) == number, "a failure")  # type: ignore[misc]
        until(lambda: rule_of(site, "a")["state"] == "quarantined", "a quarantine")
        site.write({}, rules={"a": runs(site, f"exit {number + 1}")}, quarantine={"max_failures_before_quarantine": 1})
        site.ask("reload")
    until(lambda: len(exits(site, "a")) == 4 and rule_of(site, "a")["state"] == "quarantined", "the fourth")
    assert sum("cleared by change" in entry["text"] for entry in journal(site, "a")) == 3
    site.write({}, rules={"a": runs(site, "echo mended >> ran")}, quarantine={"max_failures_before_quarantine": 1})
    site.ask("reload")
    assert rule_of(site, "a")["state"] == "quarantined"
    mark = exits(site, "a")[-1]["fingerprint"]
    site.flyball("reset", mark[:8])
    at_rest(site, "a")
    assert lines(site, "ran") == ["mended"]


def test_first_and_last_rules(site: Site) -> None:
    """Rules come to a daemon that had none, and go again; its units are not touched."""
    sleeps = {"u": {"command": "sleep 1000"}}
    site.write(sleeps)
    site.flyball("up", "-d")
    before = site.all_up("u")
    assert _names(site) == set()
    trigger = {"every": "50ms"}
    site.write(sleeps, rules={"a": runs(site, "echo $FLYBALL_FIRING >> ran", trigger), "b": runs(site, "true")})
    assert site.flyball("reload").stdout.splitlines() == ["added: a", "added: b", "unchanged: 1"]
    until(lambda: len(lines(site, "ran")) > 2, "runs")
    site.write(sleeps, rules={"b": runs(site, "true")})
    until(lambda: _names(site) == {"b"}, "the end of one")
    ran = lines(site, "ran")
    site.write(sleeps)
    until(lambda: _names(site) == set(), "the end of the other")
    assert lines(site, "ran") == ran
    assert site.all_up("u") == before


def test_removed_in_a_run(site: Site) -> None:
    """The run of a rule that is removed is ended, and what waits for it is forgotten, which is said; what did not
    change goes on with what it does."""
    goes_on = runs(site, "echo begun >> stays; until test -e go; do sleep 0.02; done; echo done >> stays")
    goes = runs(site, "echo begun >> goes; exec sleep 1000")
    site.write({}, rules={"stays": goes_on, "goes": goes})
    site.flyball("up", "-d")
    for name in ("stays", "goes", "goes"):
        fire(site, name)
    until(lambda: lines(site, "stays") and lines(site, "goes"), "both runs")
    site.write({}, rules={"stays": goes_on, "comes": runs(site, "true")})
    until(lambda: "comes" in _names(site), "the other rules")
    until(lambda: "goes" not in site.running(), "the end of its process")
    until(
        lambda: sum(entry["data"].get("dropped") == "rule_removed" for entry in journal(site, "goes")) == 2,
        "a word on both",
    )
    assert [one["cause"] for one in exits(site, "goes")] == ["stopped"]
    (site.folder / "go").touch()
    at_rest(site, "stays")
    assert lines(site, "stays") == ["begun", "done"]
    assert len(starts(site, "stays")) == 1


def test_folder_of_rules(site: Site) -> None:
    """Files come into the folder, change, and go. A broken one is named, with its line; a name that is there twice is
    refused; the rules in force stay."""
    _file(site, "one.json", a=runs(site, "echo a >> ran"))
    site.write({}, rules_dir="rules")
    site.flyball("up", "-d")
    assert _names(site) == {"a"}
    _file(site, "two.json", b=runs(site, "echo b >> ran"))
    until(lambda: _names(site) == {"a", "b"}, "another file")
    (site.folder / "rules" / "three.yaml").write_text("c:\n  triggers: [{every: soon}]\n  actions: [{run: x}]\n")
    told = until(lambda: site.ask("status")["trouble"], "a complaint")
    assert "three.yaml:2:" in told
    assert _names(site) == {"a", "b"}
    (site.folder / "rules" / "three.yaml").write_text("a:\n  triggers: [{every: 1h}]\n  actions: [{run: x}]\n")
    until(lambda: "three.yaml:1:" in site.ask("status")["trouble"], "that it is there twice")
    (site.folder / "rules" / "three.yaml").unlink()
    until(lambda: not site.ask("status")["trouble"], "no complaint")
    (site.folder / "rules" / "one.json").unlink()
    until(lambda: _names(site) == {"b"}, "one file less")
    fire(site, "b")
    at_rest(site, "b")
    assert lines(site, "ran") == ["b"]


def test_not_by_itself(site: Site) -> None:
    """`auto_reload: false`: nothing is applied before somebody says so."""
    off = {"auto_reload": False}
    site.write({}, rules={"a": runs(site, "true")}, rule=off)
    site.flyball("up", "-d")
    site.write({}, rules={"b": runs(site, "true")}, rule=off)
    said = site.flyball("reload").stdout
    assert said.splitlines() == ["added: b", "removed: a", "unchanged: 0"]
    assert site.log().count("reloaded") == 1


def test_file_right_after_the_reload(site: Site) -> None:
    """When `flyball reload` says that a rule is in force, the next file fires it: none is taken for an old one."""
    rules = {"other": runs(site, "true")}
    site.write({}, rules=rules)
    site.flyball("up", "-d")
    for number in range(5):
        inbox = site.folder / f"inbox{number}"
        inbox.mkdir()
        rules[f"files{number}"] = runs(site, "echo $FLYBALL_UNIT >> ran", {"file": f"{inbox}/*"})
        site.write({}, rules=rules)
        site.ask("reload")
        (inbox / "new").touch()
    until(lambda: sorted(lines(site, "ran")) == sorted(set(rules) - {"other"}), "five files that fired")


def test_full_disk_when_the_first_rules_come(site: Site) -> None:
    """Refused, and said why; as soon as there is room the same reload gives the daemon its rules, and they work."""
    sleeps = {"u": {"command": "sleep 1000"}}
    site.write(sleeps)
    site.flyball("up", "-d")
    site.all_up("u")
    site.write(sleeps, rules={"a": runs(site, "echo $FLYBALL_FIRING >> ran", {"every": "50ms"})})
    daemon = site.ping()["pid"]
    resource.prlimit(daemon, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    with pytest.raises(CommandError, match="no room left"):
        site.ask("reload")
    with pytest.raises(CommandError, match="no rule"):
        fire(site, "a")
    resource.prlimit(daemon, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    site.ask("reload")
    until(lambda: len(lines(site, "ran")) > 2, "runs")
