"""Nothing that another user could have written is run, read or sent.

The matrix needs root, who may give files away; without root its columns of other users' files are
made of files that every user may write.
"""

import codecs
import contextlib
import os
import pwd
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kip30.config import CommonSettings, Properties, build, load, setting, text
from kip30.config.expansion import FILE_LIMIT
from kip30.config.trust import (
    TRUSTED_VARIABLE,
    untrusted_chain_reason,
    untrusted_reason,
    untrusted_tree_reason,
)
from kip30.errors import ConfigError
from kip30.locator import PluginLocator
from kip30.runtime.resolution import check
from kip30_conformance.clients.fork_calls import in_forked_child
from tests.unit.removed_files import removed_again_and_again

ROOT, USER, OTHER = 0, 12_345, 65_534
MODES = (0o600, 0o644, 0o664, 0o666)
SECRET = "hunter2"  # noqa: S105  it is what must not be seen
IS_ROOT = os.geteuid() == ROOT

as_root = pytest.mark.skipif(not IS_ROOT, reason="only root may give files to other users")

PLUGIN = """
import pathlib
from dataclasses import dataclass
from kip30.driver import Backend

pathlib.Path({ran!r}).touch()

@dataclass(frozen=True, kw_only=True)
class Settings:
    pass

class Shop(Backend):
    name = "shop"
    settings_class = Settings
    capabilities = frozenset()
    def __init__(self, context, settings): pass
    def describe(self): return {{}}
    def close(self): pass
"""


@dataclass(frozen=True, kw_only=True)
class SafeSettings:
    password: str | None = setting("plugin.safe.password", text, default=None, doc="", secret=True)


class Place:
    """A folder of this test that all users may enter, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran = folder / "ran" / "marker"
        self.ran.parent.mkdir()
        self.ran.parent.chmod(0o777)
        self.properties = folder / "work" / "kip30.properties"
        self.properties.parent.mkdir()
        self.site = folder / "site"
        self.site.mkdir()

    def write(self, **settings: object) -> None:
        lines = (f"plugin.{key.replace('_', '.')}={value}\n" for key, value in settings.items())
        self.properties.write_text("".join(lines))

    def plugin(self) -> Path:
        """Make a store in the folder `site` that leaves a mark when it is imported."""
        module = self.site / "trust_shop.py"
        module.write_text(PLUGIN.format(ran=str(self.ran)))
        info = self.site / "trust_shop-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trust-shop\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[kip30.backends]\nshop = trust_shop:Shop\n")
        return module

    def have_run(self) -> bool:
        """Return whether the plugin was imported."""
        return self.ran.exists()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.delenv("KIP30_CONFIG", raising=False)
    monkeypatch.delenv(TRUSTED_VARIABLE, raising=False)
    # Not in tmp_path, which no other user may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = Place(folder)
        import_early(folder)
        with monkeypatch.context() as inside:
            inside.chdir(made.properties.parent)
            yield made


def import_early(folder: Path) -> None:
    """Import all that the children need: they may not read root's Python any more."""
    (folder / "early").write_text("plugin.backend=embedded\n")
    check(folder / "early")
    codecs.lookup("utf-8-sig")


def as_user(uid: int, call: Callable[[], object]) -> str:
    """Return what *call* answers, or its error, in a child that has become *uid*."""

    def become() -> object:
        if os.geteuid() != uid:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        try:
            return call()
        except ConfigError as error:
            return f"ConfigError: {error}"

    return in_forked_child(become)


def give(file: Path, owner: int, mode: int) -> None:
    if IS_ROOT:
        os.chown(file, owner, owner)
    file.chmod(mode)


OWNERS = (USER, ROOT, OTHER)
"""The user who reads, root, and another user."""

matrix = pytest.mark.parametrize(
    ("owner", "mode"), [(owner, mode) for owner in OWNERS for mode in MODES]
)


def is_trusted(owner: int, mode: int) -> bool:
    """Return whether a file in the matrix is to be trusted: its group is no user's private one.

    Root's group is root's own, so a file of root's may be written by it.
    """
    group_is_private = owner == ROOT
    may_others_write = bool(mode & 0o002) or (bool(mode & 0o020) and not group_is_private)
    return owner != OTHER and not may_others_write


def can_be_read(owner: int, mode: int) -> bool:
    return owner == USER or bool(mode & 0o004)


def namespace() -> object:
    return build(CommonSettings, load()).namespace


@as_root
@matrix
def test_a_file_that_is_found_is_used_or_refused(place: Place, owner: int, mode: int) -> None:
    place.write(namespace="found")
    give(place.properties, owner, mode)
    give(place.properties.parent, USER, 0o755)
    answer = as_user(USER, namespace)
    if not can_be_read(owner, mode):
        assert "Permission denied" in answer
    elif is_trusted(owner, mode):
        assert answer == "found"
    else:
        assert answer.startswith(f"ConfigError: {place.properties} is refused: ")
        assert f"mode {mode:04o}" in answer


@as_root
@matrix
def test_a_file_that_is_named_is_read_but_runs_nothing(place: Place, owner: int, mode: int) -> None:
    place.plugin()
    plain = place.folder / "plain.properties"
    plain.write_text("plugin.namespace=named\n")
    place.write(additional_paths=place.site, locator_classname="trust_shop:Shop")
    for file in (plain, place.properties):
        give(file, owner, mode)
    if not can_be_read(owner, mode):
        return
    assert as_user(USER, lambda: build(CommonSettings, load(plain)).namespace) == "named"
    answer = as_user(USER, lambda: PluginLocator().startup(place.properties))
    assert place.have_run() is is_trusted(owner, mode)
    assert ("another user may have written it" in answer) is not is_trusted(owner, mode)


@as_root
@matrix
@pytest.mark.parametrize("what", ["path", "module", "metadata"])
def test_code_in_an_additional_path_runs_only_if_it_is_trusted(
    place: Place, what: str, owner: int, mode: int
) -> None:
    module = place.plugin()
    given = {
        "path": place.site,
        "module": module,
        "metadata": place.site / "trust_shop-1.0.dist-info" / "entry_points.txt",
    }[what]
    give(given, owner, mode | (0o111 if what == "path" else 0))
    if not can_be_read(owner, mode):
        return
    settings = {"plugin.additional.paths": str(place.site), "plugin.backend": "shop"}
    answer = as_user(USER, lambda: check(settings, load_plugins=True).backend)
    assert place.have_run() is is_trusted(owner, mode), answer
    assert answer.startswith("ConfigError: plugin.additional.paths: ") is not is_trusted(
        owner, mode
    )


@as_root
@matrix
def test_a_referenced_file_is_read_only_if_it_is_trusted(
    place: Place, owner: int, mode: int
) -> None:
    secret = place.folder / "secret"
    secret.write_text(SECRET)
    give(secret, owner, mode)
    properties = load({"plugin.safe.password": f"${{file:{secret}}}"})
    answer = as_user(USER, lambda: build(SafeSettings, properties).password)
    if not can_be_read(owner, mode):
        assert "Permission denied" in answer
    elif is_trusted(owner, mode):
        assert answer == SECRET
    else:
        assert str(secret) in answer
        assert SECRET not in answer


@as_root
@pytest.mark.parametrize("reference", ["${file:%s}", "x${env:TRUST_TOKEN}"])
def test_a_file_of_another_user_sends_no_secret(
    place: Place, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = place.folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    monkeypatch.setenv("TRUST_TOKEN", SECRET)
    written = reference.replace("%s", str(secret))
    place.write(safe_password=written)
    give(place.properties, OTHER, 0o644)
    with pytest.raises(ConfigError, match="another user may have written it") as refused:
        build(SafeSettings, load(place.properties))
    assert SECRET not in str(refused.value)
    assert build(SafeSettings, load({"plugin.safe.password": written})).password


@as_root
def test_a_file_of_another_user_names_no_other_file(place: Place) -> None:
    further = place.folder / "further.properties"
    further.write_text(f"plugin.safe.password={SECRET}\n")
    place.write(configuration_file=further)
    give(place.properties, OTHER, 0o644)
    with pytest.raises(ConfigError, match=r"plugin.configuration.file .* reads a file"):
        load(place.properties)


@as_root
def test_a_path_in_a_file_of_another_user_is_refused(place: Place) -> None:
    place.write(backend="embedded", embedded_directory=place.folder / "state")
    give(place.properties, OTHER, 0o644)
    with pytest.raises(ConfigError, match=r"plugin.embedded.directory .*give it with --set"):
        check(place.properties)


@as_root
def test_a_user_can_be_trusted_by_name_or_number(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(namespace="found")
    give(place.properties, OTHER, 0o644)
    for name in (str(OTHER), f"root, {pwd.getpwuid(OTHER).pw_name}"):
        monkeypatch.setenv(TRUSTED_VARIABLE, name)
        assert namespace() == "found"
    monkeypatch.setenv(TRUSTED_VARIABLE, "no-such-user")
    with pytest.raises(ConfigError, match="there is no user 'no-such-user'"):
        load()


# -- without root


@pytest.mark.parametrize(
    ("mode", "trusted"), [(0o755, True), (0o1777, True), (0o777, False), (0o773, False)]
)
def test_the_folder_of_a_file_that_is_found_counts(
    place: Place, mode: int, *, trusted: bool
) -> None:
    place.write(namespace="found")
    place.properties.parent.chmod(mode)
    if trusted:
        assert namespace() == "found"
    else:
        with pytest.raises(ConfigError, match=r"every user may write .*/work, mode"):
            namespace()
        assert build(CommonSettings, load(place.properties)).namespace == "found"


def test_every_user_may_write_it(place: Place) -> None:
    place.write(namespace="found")
    place.properties.chmod(0o646)
    with pytest.raises(ConfigError, match=r"every user may write kip30\.properties, mode 0646"):
        namespace()


def test_a_file_that_is_gone_meanwhile_is_not_distrusted(place: Place) -> None:
    package = place.folder / "package"
    package.mkdir(0o755)
    with removed_again_and_again(package / "compiled.pyc.12345"):
        for _ in range(2_000):
            assert untrusted_tree_reason(package) == ""


def test_a_link_leads_to_a_file_that_counts(place: Place) -> None:
    target = place.folder / "target"
    target.write_text("plugin.namespace=linked\n")
    place.properties.symlink_to(target)
    assert namespace() == "linked"
    target.chmod(0o666)
    with pytest.raises(ConfigError, match="is refused"):
        namespace()


@as_root
def test_a_link_of_another_user_is_refused(place: Place) -> None:
    target = place.folder / "target"
    target.write_text("plugin.namespace=linked\n")
    place.properties.symlink_to(target)
    place.properties.parent.chmod(0o1777)
    os.chown(place.properties, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(ConfigError, match=r"kip30.properties belongs to .*\(uid 65534\)"):
        namespace()


def test_a_link_that_leads_nowhere_is_no_missing_file(place: Place) -> None:
    place.properties.symlink_to(place.folder / "gone")
    with pytest.raises(ConfigError, match=r"cannot read .* No such file"):
        load()


def test_a_pipe_that_is_found_is_refused_at_once(place: Place) -> None:
    os.mkfifo(place.properties)
    with pytest.raises(ConfigError, match="not a regular file"):
        load()


def test_a_pipe_that_is_named_is_read(place: Place) -> None:
    os.mkfifo(place.properties)
    content = "plugin.namespace=piped\n"
    writer = threading.Thread(target=place.properties.write_text, args=(content,))
    writer.start()
    assert build(CommonSettings, load(place.properties)).namespace == "piped"
    writer.join()


def test_the_group_of_ones_own_name_may_write(place: Place) -> None:
    place.write(namespace="found")
    status = place.properties.stat()
    user = pwd.getpwuid(os.geteuid())
    place.properties.chmod(0o664)
    os.chown(place.properties, -1, user.pw_gid)
    assert (
        untrusted_reason(place.properties, place.properties.stat(), place.properties) == ""
    ) is (_is_private_group(user))
    assert status.st_uid == user.pw_uid


def _is_private_group(user: pwd.struct_passwd) -> bool:
    import grp  # noqa: PLC0415  needed here alone

    group = grp.getgrgid(user.pw_gid)
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def test_an_access_list_is_no_private_group(place: Place) -> None:
    place.write(namespace="found")
    place.properties.chmod(0o664)
    entries = [(1, 6, 2**32 - 1), (2, 6, OTHER), (4, 4, 2**32 - 1), (16, 6, 2**32 - 1)]
    entries.append((32, 4, 2**32 - 1))
    listed = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + bits.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, bits, who in entries
    )
    with contextlib.suppress(OSError):
        os.setxattr(place.properties, "system.posix_acl_access", listed)
    if "system.posix_acl_access" not in os.listxattr(place.properties):
        pytest.skip("this file system keeps no access lists")
    assert "may write" in untrusted_reason(
        place.properties, place.properties.stat(), place.properties
    )


def test_a_folder_above_that_all_may_write_is_found_out(place: Place) -> None:
    deep = place.folder / "open" / "deep"
    deep.mkdir(parents=True)
    assert untrusted_chain_reason(deep) == ""
    (place.folder / "open").chmod(0o777)
    assert "/open, mode 0777" in untrusted_chain_reason(deep)


# -- references to what is no file


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/tty", "/dev/null"])
def test_a_reference_to_a_device_is_refused_at_once(target: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot read the file {target}"):
        _password(f"${{file:{target}}}")


def test_a_reference_to_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: not a regular file"):
        _password(f"${{file:{tmp_path}/pipe}}")


def test_a_referenced_file_has_a_greatest_size(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * FILE_LIMIT)
    assert _password(f"${{file:{file}}}") == "x" * FILE_LIMIT
    file.write_text("x" * (FILE_LIMIT + 1))
    with pytest.raises(ConfigError, match="secret: larger than 64 KiB"):
        _password(f"${{file:{file}}}")


@pytest.mark.parametrize("key", ["plugin.embedded.directory", "plugin.namespace"])
def test_a_setting_that_errors_show_cannot_be_taken_from_a_file(tmp_path: Path, key: str) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}/\x00")
    written = {"plugin.backend": "embedded", key: f"${{file:{tmp_path}/secret}}"}
    with pytest.raises(ConfigError) as refused:
        PluginLocator().startup(written)
    assert SECRET not in str(refused.value)
    assert str(refused.value).startswith(f"{key} (mapping) must not be taken from a file")


def _password(written: str) -> str | None:
    return build(SafeSettings, load({"plugin.safe.password": written})).password


def test_a_distrusted_value_stays_so_when_it_is_merged(place: Place) -> None:
    place.write(additional_paths=place.site)
    place.properties.chmod(0o666)
    merged = load(place.properties) | Properties({})
    with pytest.raises(ConfigError, match="runs code or reads files"):
        build(CommonSettings, merged)
