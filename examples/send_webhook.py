"""Sign a webhook and send it, as the Standard Webhooks specification says; with the standard library alone. Run it:

    HOOK_SECRET=… python examples/send_webhook.py http://127.0.0.1:8787/hooks/price '{"amount": 12}'

The secret is read from the environment, where other users cannot see it. It ends with 0 if the webhook was taken. What
is sent again with the same id (`--id`) is taken once.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import secrets
import sys
import time
import urllib.error
import urllib.request

TIMEOUT = 30
"""Seconds to wait for the answer."""


def key_of(secret: str) -> bytes:
    """A secret is base64 with `whsec_` before it; any other text is taken as it is."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    encoded = secret.removeprefix("whsec_")
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)


def headers_of(body: bytes, secret: str, id_: str, now: int) -> dict[str, str]:
    """What a receiver checks: who sent it, when, and that it is as it was sent."""
    content = f"{id_}.{now}.".encode() + body
    signature = base64.b64encode(hmac.digest(key_of(secret), content, hashlib.sha256)).decode()
    return {
        "content-type": "application/json",
        "webhook-id": id_,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{signature}",
    }


def main() -> int:
    """Send what the command line says."""
    parser = argparse.ArgumentParser(description="Sign a webhook and send it. The secret is in $HOOK_SECRET.")
    parser.add_argument("url", help="such as http://127.0.0.1:8787/hooks/price")
    parser.add_argument("json", nargs="?", default="{}", help="what to send; - reads it from the standard input")
    parser.add_argument("--id", default=f"msg_{secrets.token_hex(12)}", help="of what happened; not given: a new one")
    asked = parser.parse_args()
    body = (sys.stdin.read() if asked.json == "-" else asked.json).encode()
    try:
        json.loads(body)
    except ValueError as error:
        parser.error(f"that is not JSON: {error}")
    secret = os.environ.get("HOOK_SECRET", "")
    if not secret:
        parser.error("HOOK_SECRET is not set: it is the `secret` of the rule's webhook")
    if not asked.url.startswith(("http://", "https://")):
        parser.error(f"{asked.url!r} is not an address: it begins with http:// or https://")
    try:
        headers = headers_of(body, secret, asked.id, int(time.time()))
    except ValueError:
        parser.error("HOOK_SECRET begins with whsec_, and what follows is not base64")
    request = urllib.request.Request(asked.url, data=body, headers=headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310 - checked above
            print(answer.status, answer.read().decode())
            return 0
    except urllib.error.HTTPError as refused:
        with refused:
            print(refused.code, refused.read().decode())
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"not sent: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
