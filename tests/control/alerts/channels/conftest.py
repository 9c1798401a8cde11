"""What every test of a channel needs."""

from collections.abc import Iterator

import pytest

from flyball import http_client


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs this may have one."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def trust_anew() -> Iterator[None]:
    """Whom this machine trusts may change meanwhile; a test ends it by reading it once more."""
    http_client.certificates.cache_clear()
    yield
    http_client.certificates.cache_clear()
