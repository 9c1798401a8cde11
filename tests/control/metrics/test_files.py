"""The files for Prometheus and Grafana: what they ask for exists, and promtool finds nothing wrong with any of it."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import promtool

from flyball.control.metrics.names import METRICS, PROCESS
from flyball.core.event import Start
from tests.control.metrics.scene import Scraped
from tests.control.metrics.test_metrics import spend

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs/reference/metrics.md"
RULES = ROOT / "deploy/prometheus/flyball.rules.yml"
RULES_TEST = ROOT / "deploy/prometheus/flyball.rules.test.yml"
DASHBOARD = ROOT / "deploy/grafana/flyball.json"

NAME = re.compile(r"\b(?:flyball|process)_[a-z0-9_]+\b")
RECORDED = re.compile(r"\bflyball:[a-z0-9_:]+\b")
SUFFIXES = ("_bucket", "_sum", "_count")

STRANGE = ('a"b', "a\\b", "a\nb", "a{b}", "ünïcode-☃", 'x",unit="y', "a" * 500, "\\", "\t", "0")


def promtool_or_skip() -> str:
    found = promtool.find()
    if found is None:
        pytest.skip("there is no promtool: `python -m tools.promtool` fetches it, where that is possible")
    return found


def check(*args: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run promtool; it has to be content."""
    done = subprocess.run(
        [promtool_or_skip(), *args], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def exists(name: str) -> bool:
    """Whether it is a metric, or one of the series of a histogram."""
    if name in METRICS or name in PROCESS:
        return True
    base = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)
    return base in METRICS and METRICS[base].kind == "histogram"


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Of every panel its title and what it asks for, with what Grafana fills in filled in."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")


def test_every_metric_is_in_the_docs_and_every_one_there_exists() -> None:
    """Both ways: a heading for each, with its kind, its labels and what it says."""
    text = DOCS.read_text()
    headed = re.findall(r"^### `([a-z_]+)`$", text, re.MULTILINE)
    assert sorted(headed) == sorted(METRICS)
    for metric in METRICS.values():
        section = text.partition(f"### `{metric.name}`\n")[2].partition("\n#")[0]
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert section.startswith(f"\n{metric.kind.capitalize()}{f', by {labels}' if labels else ''}. "), metric.name
        assert " ".join(metric.help.split()) in " ".join(section.split()), metric.name
    for name in PROCESS:
        assert f"`{name}`" in text


@pytest.mark.parametrize("file", [DOCS, RULES, RULES_TEST, DASHBOARD], ids=lambda path: path.name)
def test_every_name_that_is_used_exists(file: Path) -> None:
    """In the docs, the rules, their tests and the dashboard."""
    text = file.read_text()
    names = set(NAME.findall(text))
    assert names
    assert {name for name in names if not exists(name)} == set()
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    assert set(RECORDED.findall(text)) <= recorded


def test_labels_that_are_asked_for_exist() -> None:
    """A selector names only labels that its metric has, or that Prometheus adds."""
    for _, query in [*queries(), *((rule.get("alert", ""), rule["expr"]) for rule in rules())]:
        for name, selector in re.findall(r"\b(flyball_[a-z_]+)\{([^}]*)\}", query):
            metric = METRICS.get(name) or METRICS[name.removesuffix("_bucket")]
            asked = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selector))
            assert asked <= {*metric.labels, "instance", "job"}, query


def test_a_scrape_with_strange_names() -> None:
    """`promtool check metrics` has nothing to say about anything that is told, whatever units are called."""
    scraped = Scraped()
    scraped.scene.everything()
    for name in STRANGE:
        scraped.governor.submit(Start(unit=name, run="r", down=5, again=True))
        spend(scraped, name, 100, user=name, provider=name)
    done = check("check", "metrics", given=scraped.text())
    assert done.stdout + done.stderr == ""


def test_rules() -> None:
    """`promtool check rules`."""
    check("check", "rules", str(RULES))


@pytest.mark.slow
def test_rules_fire_when_they_should() -> None:
    """`promtool test rules`: each alert fires for what it is for, and not for what is beside it."""
    check("test", "rules", str(RULES_TEST))


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    """Each one fires in a test, has a severity, and tells a person what to do."""
    fired = {
        test["alertname"]
        for case in yaml.safe_load(RULES_TEST.read_text())["tests"]
        for test in case.get("alert_rule_test", ())
        if test.get("exp_alerts")
    }
    alerts = [rule for rule in rules() if "alert" in rule]
    assert {rule["alert"] for rule in alerts} == fired
    for rule in alerts:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"], rule["alert"]


def test_the_dashboard_asks_what_prometheus_understands(tmp_path: Path) -> None:
    """Every query of every panel is PromQL: given to promtool as rules."""
    given = [{"record": f"panel:{number}", "expr": query} for number, (_, query) in enumerate(queries())]
    assert len(given) > 20
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": given}]}))
    check("check", "rules", str(file))


def test_the_dashboard_is_one() -> None:
    """Each panel has an id and a place of its own, and only the variable names a source of data."""
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["description"], panel["title"]
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "instance"}
