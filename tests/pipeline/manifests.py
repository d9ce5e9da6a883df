"""Manifests that say something else than the job wrote, and are whole nevertheless."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kip30.pipeline.manifest import MANIFEST_NAME, with_checksum


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Let *edit* change the fields of the manifest in *folder*."""
    file = folder / MANIFEST_NAME
    fields = json.loads(file.read_text())
    del fields["format"], fields["checksum"]
    edit(fields)
    file.write_text(with_checksum(fields))
