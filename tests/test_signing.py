"""Signatures of webhooks: what is signed here is what others check, and the other way round."""

import base64

import pytest

from flyball.signing import SIGNATURES_MAX, is_signed, keys, sign

SIGNS = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}'
RIGHT = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_example_of_the_specification() -> None:
    """The example that the Standard Webhooks specification gives is signed as it says."""
    assert sign(SIGNS, ID, AT, BODY) == RIGHT
    assert is_signed(SIGNS, ID, AT, BODY, RIGHT)


@pytest.mark.parametrize("secret", [SIGNS, SIGNS.removeprefix("whsec_"), "not base64, but long enough", "whsec_!?"])
def test_both_ways(secret: str) -> None:
    """What is signed with a secret, of whatever form, is found to be signed with it; with another it is not."""
    signature = sign(secret, ID, AT, BODY)
    assert is_signed(secret, ID, AT, BODY, signature)
    assert not is_signed("another, as long as that one", ID, AT, BODY, signature)


@pytest.mark.parametrize(
    ("id_", "at", "body"), [("msg_other", AT, BODY), (ID, "1614265331", BODY), (ID, AT, BODY + b" "), (ID, AT, b"")]
)
def test_anything_changed(id_: str, at: str, body: bytes) -> None:
    """Whatever is changed of it, the signature is not its own any more."""
    assert not is_signed(SIGNS, id_, at, body, RIGHT)


@pytest.mark.parametrize(
    ("signatures", "good"),
    [
        (f"v1,AAAA {RIGHT}", True),
        (f"v1a,AAAA {RIGHT} nonsense", True),
        (RIGHT.removeprefix("v1,"), False),
        (RIGHT.replace("v1,", "v2,"), False),
        (" ".join(["v1,AAAA"] * SIGNATURES_MAX + [RIGHT]), False),
        ("", False),
        ("v1,", False),
        ("v1,\xff", False),
    ],
)
def test_several(signatures: str, good: bool) -> None:
    """One good signature of a few is enough; of too many it is not looked for."""
    assert is_signed(SIGNS, ID, AT, BODY, signatures) is good


def test_keys() -> None:
    """A secret is read as base64 where it is some, and as it is where it is none, or too little."""
    assert keys(SIGNS) == (base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), SIGNS.encode())
    assert keys("whsec_AAAA") == (b"whsec_AAAA",)
    assert keys("no base64!") == (b"no base64!",)
