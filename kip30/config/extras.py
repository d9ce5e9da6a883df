"""Extras of the package: optional dependencies, such as those of a store."""

import json
import shlex
from typing import Any
from urllib.parse import unquote, urlsplit


def how_to_install(extra: str) -> str:
    """Return the command that installs *extra* from where kip30 itself was installed.

    pip keeps that in ``direct_url.json``, unless it was an index
    (https://packaging.python.org/en/latest/specifications/direct-url/).
    """
    wanted = f"kip30[{extra}]"
    source = _source()
    url: str = source.get("url", "")
    folder = source.get("dir_info")
    if folder is not None:
        editable = "-e " if folder.get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{unquote(urlsplit(url).path)}[{extra}]')}"
    if url:
        kind = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
        wanted = f"{wanted} @ {kind}{url}"
    return f"pip install {shlex.quote(wanted)}"


def _source() -> dict[str, Any]:
    from importlib import metadata  # noqa: PLC0415  a quarter of kip30's own import

    try:
        written = metadata.distribution("kip30").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        written = None
    return json.loads(written) if written else {}
