"""The configuration of a store, as the workers of a job receive it.

On a local master workers read the same file as the driver: only its path travels. Elsewhere its
settings travel as they are written, references unexpanded, with the folder of the file at which
relative paths begin; a secret that is written out does not.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from kip30.config import Properties, folders, load, worker_settings
from kip30.errors import UsageError
from kip30.runtime.resolution import Resolved, resolve


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Exactly one of *file* and *settings* is given.

    Attributes:
        file: A properties file.
        settings: Settings by key, as they are written, references unexpanded.
        folders: Where relative paths in them begin, by key; the working directory for the others.
    """

    file: Path | None = None
    settings: tuple[tuple[str, str], ...] | None = None
    folders: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_file(cls, file: Path) -> "StoreConfig":
        """Return the configuration in *file*, which must be a regular file: each use reads it."""
        return cls(file=file.absolute())

    @classmethod
    def of_properties(cls, properties: Properties) -> "StoreConfig":
        """Return *properties* without their file.

        Raises:
            ConfigError: A secret is written out, or a value may not leave its file; the message
                names the key and says what to write.
        """
        settings_class = resolve(properties).choice.backend.settings_class
        return cls(
            settings=tuple(worker_settings(properties, settings_class).items()),
            folders=tuple(folders(properties, settings_class).items()),
        )

    @classmethod
    def parse(cls, text: str) -> "StoreConfig":
        """Return what `text` made a text of.

        Raises:
            UsageError: It is not such a text.
        """
        try:
            found = json.loads(text)
            if "file" in found:
                return cls(file=Path(found["file"]))
            return cls(
                settings=tuple(found["settings"].items()),
                folders=tuple(found.get("folders", {}).items()),
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # not chained: the text may hold a secret
        raise UsageError("that is no configuration as kip30's jobs pass it on")

    def text(self) -> str:
        """Return it as one line without secrets, which `parse` reads."""
        if self.file is not None:
            return json.dumps({"file": str(self.file)})
        return json.dumps({"settings": dict(self.settings or ()), "folders": dict(self.folders)})

    def shipped(self) -> "StoreConfig":
        """Return the same without its file; raises as `of_properties` does."""
        return self if self.file is None else self.of_properties(self.properties())

    def properties(self) -> Properties:
        """Read it.

        Raises:
            ConfigError: The file cannot be read, or is no regular file. A pipe would be empty the
                second time, which means the default store.
        """
        if self.file is not None:
            return load(self.file, may_wait=False)
        given = load(dict(self.settings or ()), origin="the job's configuration")
        begin = {key: Path(folder) for key, folder in self.folders}
        return Properties(
            {key: replace(value, folder=begin.get(key)) for key, value in given.items()}
        )

    def resolve(self) -> Resolved:
        """Return what it means; raises `ConfigError` as `kip30.runtime.resolution.resolve` does."""
        return resolve(self.properties())
