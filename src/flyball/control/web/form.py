"""The form to log in with: a page without a script, an address or anything else from elsewhere. It is the body of an
answer that says 401."""

import base64
import hashlib
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --accent: #2463c9; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; min-height: 100vh; display: grid; place-items: center; }
main { width: min(26rem, calc(100vw - 3rem)); }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; }
label { display: block; font-weight: 600; margin: 1.25rem 0 .35rem; }
input { box-sizing: border-box; width: 100%; padding: .7rem; font: inherit; border: 1px solid var(--line);
  border-radius: .4rem; }
button { width: 100%; margin-top: 1rem; padding: .75rem; font: inherit; font-weight: 600; border: 0;
  border-radius: .4rem; background: var(--accent); color: #fff; cursor: pointer; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.wrong { border-left: 4px solid #c0392b; padding: .1rem .8rem; }
code { font-size: .95em; }
"""
STYLE_HASH: Final = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
"""By which the browser knows that this style is ours."""

PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>flyball: log in</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>flyball</h1>
<p>Log in with a token. On the machine where it runs, <code>flyball page</code> makes a link that needs none, and
<code>flyball token show admin</code> shows one.</p>
{wrong}<form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""
ONWARD: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=/">
<title>flyball</title>
</head>
<body><p><a href="/">You are logged in: go on to the page.</a></p></body>
</html>
"""


def page(wrong: str = "", *, status: int = 401, headers: dict[str, str] | None = None) -> HTMLResponse:
    """The form, and what was wrong with the last attempt."""
    said = f'<p class="wrong" role="alert">{escape(wrong)}</p>\n' if wrong else ""
    return HTMLResponse(PAGE.format(style=STYLE, wrong=said), status, headers)


def onward() -> HTMLResponse:
    """What leads to the page who came by a link on a page of others, in a chat or a mail. A redirect would count as a
    step of theirs, with which the browser sends no cookie; this is a step of ours."""
    return HTMLResponse(ONWARD)
