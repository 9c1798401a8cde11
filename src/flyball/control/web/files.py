"""The page's own files. A browser asks each time whether they changed, so that a page and its daemon are of one
version."""

import hashlib
import mimetypes
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.control.context import CommandError
from flyball.control.web.replies import error_reply

FOLDER: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"
TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
"""Told by us, and not by the system's list: a browser runs no script that is called something else."""
FILES_MAX: Final = 500
"""Files that are kept in memory; there are some dozens."""


class Files:
    """Those of one folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder.resolve()
        self._kept: dict[str, tuple[int, str, bytes]] = {}

    def routes(self) -> list[Route]:
        return [Route("/", self._index, methods=["GET"]), Route("/static/{path:path}", self._file, methods=["GET"])]

    async def _index(self, request: Request) -> Response:
        return self._reply(request, INDEX)

    async def _file(self, request: Request) -> Response:
        return self._reply(request, request.path_params["path"])

    def _reply(self, request: Request, name: str) -> Response:
        found = self._find(name)
        if found is None:
            return error_reply(CommandError("not_found", "there is no such file", remedy="The page is at `/`."))
        tag, data = found
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        suffix = Path(name).suffix
        kind = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(data, headers=headers, media_type=kind)

    def _find(self, name: str) -> tuple[str, bytes] | None:
        """A file's tag and what is in it; None if it is none of the folder's."""
        if "\0" in name or any(part.startswith(".") for part in Path(name).parts):
            return None
        try:
            path = (self._folder / name).resolve(strict=True)
            if not path.is_relative_to(self._folder) or not path.is_file():
                return None
            changed = path.stat().st_mtime_ns
            kept = self._kept.get(name)
            if kept is not None and kept[0] == changed:
                return kept[1:]
            data = path.read_bytes()
        except (OSError, ValueError):
            return None
        tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        if len(self._kept) < FILES_MAX:
            self._kept[name] = (changed, tag, data)
        return tag, data
