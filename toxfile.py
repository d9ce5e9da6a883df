"""What tox reads beside ``tox.ini``: it finds the interpreters that only pyenv knows, too.

pyenv's own ``python3.13`` works only where its user has selected that version. So the folders of
all installed versions are looked through last. Without pyenv there are none.
"""

import os
from pathlib import Path


def _find_interpreters_of_pyenv() -> None:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = map(str, sorted(root.glob("versions/3.*/bin")))
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])


_find_interpreters_of_pyenv()
