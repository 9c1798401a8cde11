"""The settings' section `alerts`: what may be said, what is wrong, and that no secret is ever shown."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flyball.cli import main
from flyball.config import load
from flyball.config.alert_settings import KEYS, Severity
from flyball.config.alerts import KINDS, SEVERITIES, AlertRule, Alerts, Email, Ntfy, Quiet
from flyball.config.planning import read_plan
from flyball.control.alerts import notices
from flyball.core.time import MINUTE, SECOND
from flyball.errors import SettingsError

PHONE = {"type": "ntfy", "topic": "t0p1c"}
SECRET = "s3cret-s3cret-s3cret"  # noqa: S105 - it opens nothing

CHANNELS: dict[str, dict[str, Any]] = {
    "ntfy": {"type": "ntfy", "topic": SECRET, "url": f"https://u:{SECRET}@n.example", "token": SECRET},
    "webhook": {"type": "webhook", "url": f"https://h.example/{SECRET}", "secret": SECRET},
    "email": {"type": "email", "host": "h", "sender": "a@b.c", "to": ["d@e.f"], "user": "u", "password": SECRET},
    "telegram": {"type": "telegram", "token": SECRET, "chats": [-5, "@ops"]},
    "apprise": {"type": "apprise", "urls": [f"slack://{SECRET}"]},
}


def read(folder: Path, alerts: Any, env: dict[str, str] | None = None) -> Alerts:
    file = folder / "flyball.yaml"
    file.write_text(yaml.safe_dump({"units": {"a": {"command": "x"}}, "alerts": alerts}, sort_keys=False))
    return read_plan(file, env or {})[0].alerts


def problems(folder: Path, alerts: Any) -> str:
    with pytest.raises(SettingsError) as wrong:
        read(folder, alerts)
    return str(wrong.value)


def test_nothing_given(tmp_path: Path) -> None:
    """Without the section nobody is told anything."""
    assert read(tmp_path, {}) == Alerts()


def test_everything_given(tmp_path: Path) -> None:
    """What is given is what the plan says."""
    found = read(
        tmp_path,
        {
            "channels": {"phone": {**PHONE, "timeout_seconds": 5}, "mail": CHANNELS["email"]},
            "rules": [{"kinds": "quarantined", "units": ["shop-*"], "labels": {"team": "x"}, "channels": "mail"}],
            "quiet_hours": {"from": "22:30", "to": "7:00", "timezone": "Europe/Berlin", "passes": "warning"},
            "group_wait_seconds": 10,
            "url": "https://flyball.example.org/",
        },
    )
    phone, mail = found.channels
    assert phone == Ntfy(name="phone", topic="t0p1c", timeout=5 * SECOND)
    assert isinstance(mail, Email)
    assert (mail.port, mail.to, mail.password) == (587, ("d@e.f",), SECRET)
    rule = AlertRule(kinds=("quarantined",), units=("shop-*",), labels={"team": "x"}, channels=("mail",))
    assert found.rules == (rule,)
    assert found.quiet == Quiet(start=22 * 60 + 30, end=7 * 60, timezone="Europe/Berlin", passes="warning")
    assert (found.group_wait, found.renew_after, found.url) == (10 * SECOND, 5 * MINUTE, "https://flyball.example.org")


@pytest.mark.parametrize(
    ("alerts", "says"),
    [
        ({"chanels": {}}, "unknown key 'chanels' in alerts; did you mean 'channels'"),
        ({"channels": {"p": {}}}, "alerts.channels.p: a channel needs its `type`"),
        ({"channels": {"p": {"type": "pager"}}}, "allowed: ntfy or webhook or email or telegram or apprise"),
        ({"channels": {"p": {"type": "ntfy"}}}, "a channel of type ntfy needs `topic`"),
        (
            {"channels": {"p": {**PHONE, "host": "x"}}},
            "p.host: a channel of type ntfy has no such key; it has token, topic",
        ),
        ({"channels": {"p": {**PHONE, "url": "ntfy.sh"}}}, "p.url: should begin with http:// or https://"),
        ({"channels": {"p": {"type": "ntfy", "topic": "a b"}}}, "p.topic: should have at most 64 letters"),
        ({"channels": {"a b": PHONE}}, "the name of a channel has at most 64 letters"),
        ({"channels": {"p": {**CHANNELS["webhook"], "secret": "short"}}}, "p.secret: should have at least 16"),
        ({"channels": {"p": {**CHANNELS["email"], "to": ["Ann <a@b>"]}}}, "p.to: should be an address such as"),
        ({"channels": {"p": PHONE}, "rules": [{"channels": ["q"]}]}, "no channel 'q'; there are: p"),
        ({"rules": [{"kinds": ["quarantine"]}]}, "no kind of alert 'quarantine'; did you mean quarantined"),
        ({"rules": [{"severity": "bad"}]}, "allowed: info or warning or critical"),
        ({"quiet_hours": {"from": "22:00"}}, "quiet hours need both `from` and `to`"),
        ({"quiet_hours": {"from": "22:00", "to": "22:00"}}, "are none, or all day"),
        ({"quiet_hours": {"from": "25:00", "to": "7:00"}}, 'should be a time of the day, in quotes, such as "22:00"'),
        ({"quiet_hours": {"from": "22:00", "to": "7:00", "timezone": "Mars"}}, "should be a time zone such as"),
        ({"group_wait_seconds": 0}, "allowed: a number at least"),
    ],
)
def test_wrong(tmp_path: Path, alerts: Any, says: str) -> None:
    """Each mistake is told with its place, and what is allowed."""
    told = problems(tmp_path, alerts)
    assert says in told
    assert f"{tmp_path / 'flyball.yaml'}:" in told


@pytest.mark.parametrize("kind", KEYS)
def test_no_secret_is_shown(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not by `config`, not in errors about them, and not where a plan is printed."""
    found = read(tmp_path, {"channels": {"c": CHANNELS[kind]}})
    shown = [repr(found), repr(load(tmp_path / "flyball.yaml").alerts.alerts)]
    assert main(["config", str(tmp_path / "flyball.yaml")]) == 0
    shown.append(capsys.readouterr().out)
    for key in [key for key, value in CHANNELS[kind].items() if SECRET in str(value)]:
        for wrong in ([SECRET, [SECRET]], {"x": SECRET}, f"{SECRET}\0", 5):
            try:
                read(tmp_path, {"channels": {"c": {**CHANNELS[kind], key: wrong}}})
            except SettingsError as error:
                shown.append(str(error))
    assert SECRET not in "".join(shown)
    assert "(not shown)" in shown[2]


def test_variables(tmp_path: Path) -> None:
    """${NAME} stands for a variable; one that is not there is told with its place, before anything runs."""
    alerts = {"channels": {"p": {"type": "telegram", "token": "${TG}", "chats": ["${CHAT}"]}}}
    (found,) = read(tmp_path, alerts, {"TG": SECRET, "CHAT": "5"}).channels
    assert (found.token, found.chats) == (SECRET, ("5",))  # type: ignore[union-attr]
    with pytest.raises(SettingsError, match=r"flyball.yaml:\d+:\d+: alerts.channels.p.token: there is no variable TG"):
        read(tmp_path, alerts, {"CHAT": "5"})


def test_variables_that_units_do_not_inherit(tmp_path: Path) -> None:
    """Those that secrets of channels and of the bot are made of, and settings of them; what a unit names itself, and
    what everybody has, is not among them."""
    channels = {
        "p": {"type": "telegram", "token": "${CHAT_TOKEN}", "chats": ["${CHAT}"]},
        "s": {"type": "webhook", "url": "https://${HOSTNAME}/${HOOK}?x=$${NOT}", "secret": "${SIGN}"},
        "a": {"type": "apprise", "urls": ["slack://${SLACK}", "json://x"]},
    }
    unit = {"command": "x", "env": {"KEY": "${KEY}"}}
    bot = {"token": "${BOT}", "users": [{"id": 1}]}
    file = tmp_path / "flyball.yaml"
    file.write_text(yaml.safe_dump({"units": {"a": unit}, "telegram": bot, "alerts": {"channels": channels}}))
    names = ("CHAT_TOKEN", "CHAT", "HOSTNAME", "HOOK", "SIGN", "SLACK", "KEY", "FLYBALL_STATE_DIR")
    env = {**dict.fromkeys(names, SECRET), "BOT": f"1:{'x' * 35}", "FLYBALL_ALERTS__BUDGET_NEAR": "0.5"}
    plan, _ = read_plan(file, env)
    assert plan.withheld == ("BOT", "CHAT_TOKEN", "FLYBALL_ALERTS__BUDGET_NEAR", "HOOK", "SIGN", "SLACK")
    assert plan.units[0].env == {"KEY": SECRET}


@pytest.mark.parametrize("key", ["token", "secret", "password", "urls"])
def test_files(tmp_path: Path, key: str) -> None:
    """A secret may stand in a file beside the settings; it is told if that cannot be read, and if both are given."""
    kind = {"token": "telegram", "secret": "webhook", "password": "email", "urls": "apprise"}[key]
    (tmp_path / "held").write_text(f"{SECRET}\n")
    given = {other: value for other, value in CHANNELS[kind].items() if other != key}
    (found,) = read(tmp_path, {"channels": {"c": {**given, f"{key}_file": "held"}}}).channels
    assert getattr(found, key) in (SECRET, (SECRET,))
    assert f"c.{key}_file: {tmp_path / 'none'}: No such file" in problems(
        tmp_path, {"channels": {"c": {**given, f"{key}_file": "none"}}}
    )
    both = {"channels": {"c": {**CHANNELS[kind], f"{key}_file": "held"}}}
    assert f"there is `{key}` already; give one of them" in problems(tmp_path, both)


def test_one_list() -> None:
    """The kinds that rules may name are those that there are, and so are the severities."""
    assert tuple(notices.KINDS) == KINDS
    assert Severity.__args__ == SEVERITIES  # type: ignore[attr-defined]
