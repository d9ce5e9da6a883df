"""Finding backends in real packages, in folders and zip files of the test's own."""

import importlib.util
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stevedore import ExtensionManager, _cache

from kip30.config import CommonSettings, build, load
from kip30.driver import Backend
from kip30.errors import ConfigError
from kip30.runtime import backend_registry
from kip30.runtime.backend_registry import Choice, NotLoadedError
from kip30.runtime.plugin_paths import AdditionalPaths
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.polling import eventually

BACKEND = """
from dataclasses import dataclass
from kip30.driver import Backend

@dataclass(frozen=True, kw_only=True)
class Settings:
    pass

class {name}(Backend):
    name = "{name}"
    settings_class = Settings
    capabilities = frozenset()
    def __init__(self, context, settings): pass
    def describe(self): return {{}}
    def close(self): pass
"""


class Site:
    """A folder of packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def module(self, module: str, source: str) -> None:
        (self.folder / f"{module}.py").write_text(source)

    def distribution(self, name: str, entry_points: str = "", metadata: str = "") -> None:
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n{metadata}")
        (info / "entry_points.txt").write_text(f"[kip30.backends]\n{entry_points}\n")

    def backend(self, name: str) -> None:
        """Install a backend called *name*, in a module of its own."""
        self.module(f"site_{name}", BACKEND.format(name=name))
        self.distribution(name, f"{name} = site_{name}:{name}")

    def broken(self, name: str, source: str) -> None:
        """Install a backend whose module is *source*."""
        self.module(f"site_{name}", source)
        self.distribution(name, f"{name} = site_{name}:{name}")

    def zipped(self, file: Path) -> Path:
        """Return a zip file of all that is here."""
        with zipfile.ZipFile(file, "w") as archive:
            for part in self.folder.rglob("*"):
                archive.write(part, part.relative_to(self.folder))
        return file


def forget_scan() -> None:
    """Let stevedore look again: it keeps what it found first."""
    ExtensionManager.ENTRY_POINT_CACHE.pop(backend_registry.GROUP, None)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The only place besides the standard library from which anything can be imported."""
    site = Site(tmp_path / "site")
    library = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    monkeypatch.setattr(sys, "path", [str(site.folder), *library])
    monkeypatch.setattr(_cache._c, "_disable_caching", True)
    monkeypatch.setattr(backend_registry, "OWN_STORES", ())
    forget_scan()
    yield site
    forget_scan()
    for module in [name for name in sys.modules if name.startswith("site_")]:
        del sys.modules[module]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Site:
    """A folder of packages that Python does not look in."""
    return Site(tmp_path / "elsewhere")


def chosen(written: dict[str, str], origin: str = "mapping") -> Choice:
    properties = load(written, origin=origin)
    return backend_registry.choose(build(CommonSettings, properties), properties)


def choose(**written: str) -> type[Backend]:
    return chosen({f"plugin.{key}": value for key, value in written.items()}).backend


# -- by name


def test_finds_a_backend_by_its_entry_point(site: Site) -> None:
    site.backend("shop")
    site.backend("mall")
    assert backend_registry.names() == ["mall", "shop"]
    assert backend_registry.find("shop").name == "shop"


def test_only_the_wanted_backend_is_imported(site: Site) -> None:
    site.backend("shop")
    site.broken("mall", "raise SystemExit")
    assert backend_registry.find("shop").name == "shop"
    assert backend_registry.names() == ["mall", "shop"]


def test_an_unknown_name_is_refused_with_all_that_helps(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.backend("etcd")
    site.backend("shop")
    with pytest.raises(ConfigError) as refused:
        backend_registry.find("ectd")
    assert str(refused.value) == (
        "no backend 'ectd' is installed (did you mean etcd?); installed: etcd, shop"
    )
    with pytest.raises(ConfigError, match=r"XDG_CACHE_HOME .*; installed: etcd, shop"):
        backend_registry.find("zzz")
    assert capfd.readouterr() == ("", "")


def test_kip30s_own_stores_are_named_with_their_extra(site: Site) -> None:
    site.distribution("kip30", metadata="Provides-Extra: etcd\n")
    hint = r"'etcd' is installed; pip install 'kip30\[etcd\]'; "
    with pytest.raises(ConfigError, match=hint):
        backend_registry.find("etcd")
    site.broken("etcd", "import site_grpc")
    forget_scan()
    _cache._c._internal.clear()
    with pytest.raises(ConfigError) as refused:
        backend_registry.find("etcd")
    assert str(refused.value) == (
        "backend 'etcd' cannot be imported: ModuleNotFoundError: No module named 'site_grpc'"
        "; pip install 'kip30[etcd]'"
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import site_vendor", "ModuleNotFoundError: No module named 'site_vendor'"),
        ("from os import nothing", "ImportError: cannot import name 'nothing' from 'os'"),
        ("", "AttributeError: module 'site_shop' has no attribute 'shop'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("class", "SyntaxError: invalid syntax"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_the_error_names_why_a_backend_cannot_be_imported(
    site: Site, capfd: pytest.CaptureFixture[str], source: str, reason: str
) -> None:
    site.broken("shop", source)
    with pytest.raises(ConfigError) as refused:
        backend_registry.find("shop")
    assert str(refused.value).startswith(f"backend 'shop' cannot be imported: {reason}")
    assert refused.value.__cause__ is not None
    assert capfd.readouterr() == ("", "")


def test_a_name_claimed_twice_is_refused_with_both(site: Site) -> None:
    site.backend("shop")
    site.backend("mall")
    site.distribution("copycat", "shop = site_mall:mall")
    with pytest.raises(ConfigError) as refused:
        backend_registry.find("shop")
    assert "site_shop:shop" in str(refused.value)
    assert "site_mall:mall" in str(refused.value)
    assert backend_registry.names() == ["mall", "shop"]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("shop = 5", "is not a subclass of kip30.driver.Backend: 5"),
        ("class shop: pass", "is not a subclass of kip30.driver.Backend: <class 'site_shop.shop'>"),
        (
            "from kip30.driver import Backend\nclass shop(Backend): name = 'shop'",
            "lacks settings_class, capabilities, __init__, close, describe",
        ),
        (
            BACKEND.format(name="shop") + "    settings_class = int",
            "has a settings_class that is not a dataclass",
        ),
        (
            BACKEND.format(name="shop") + "    capabilities = None",
            "has capabilities that are not a frozenset of kip30.driver.Capability",
        ),
        (
            BACKEND.format(name="shop") + "    capabilities = frozenset({'fencing'})",
            "has capabilities that are not a frozenset of kip30.driver.Capability",
        ),
    ],
)
def test_an_incomplete_backend_is_refused(site: Site, source: str, complaint: str) -> None:
    site.broken("shop", source)
    with pytest.raises(ConfigError) as refused:
        backend_registry.find("shop")
    assert str(refused.value) == f"backend 'shop' {complaint}"


# -- by class


@pytest.mark.parametrize("dotted", ["site_shop:shop", "site_shop.shop"])
def test_loads_a_class_by_its_name(site: Site, dotted: str) -> None:
    site.backend("shop")
    assert backend_registry.load_class(dotted).name == "shop"


def test_loads_a_class_that_stands_in_another(site: Site) -> None:
    site.module("site_shop", BACKEND.format(name="shop") + "\nclass Outer: inner = shop")
    assert backend_registry.load_class("site_shop:Outer.inner").name == "shop"


@pytest.mark.parametrize(
    ("dotted", "complaint"),
    [
        ("shop", "'shop' is not the name of a class: write package.module:Class"),
        ("shop:", "'shop:' is not the name of a class"),
        (":Shop", "':Shop' is not the name of a class"),
        ("site_no:Shop", "backend class 'site_no:Shop' cannot be imported: ModuleNotFoundError"),
        ("os:Shop", "backend class 'os:Shop' cannot be imported: AttributeError"),
        ("os.path:join", "backend class 'os.path:join' is not a subclass of kip30.driver.Backend"),
        ("..x:Shop", "backend class '..x:Shop' cannot be imported"),
    ],
)
@pytest.mark.usefixtures("site")
def test_the_error_names_the_fault_of_a_class_name(dotted: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        backend_registry.load_class(dotted)
    assert str(refused.value).startswith(complaint)


# -- in additional paths


@pytest.mark.usefixtures("site")
def test_finds_a_backend_in_a_folder_and_in_a_zip_file(elsewhere: Site, tmp_path: Path) -> None:
    elsewhere.backend("shop")
    elsewhere.zipped(tmp_path / "shop.zip")
    before = list(sys.path)
    for place in (elsewhere.folder, tmp_path / "shop.zip"):
        found = backend_registry.find("shop", [place])
        origin = sys.modules.pop("site_shop").__file__
        assert found.name == "shop"
        assert str(origin).startswith(str(place))
        assert backend_registry.names([place]) == ["shop"]
    assert backend_registry.names() == []
    assert sys.path == before


@pytest.mark.usefixtures("site")
def test_loads_a_class_from_a_folder_and_from_a_zip_file(elsewhere: Site, tmp_path: Path) -> None:
    elsewhere.module("site_shop", BACKEND.format(name="shop"))
    elsewhere.zipped(tmp_path / "shop.zip")
    for place in (elsewhere.folder, tmp_path / "shop.zip"):
        assert backend_registry.load_class("site_shop:shop", [place]).name == "shop"
        del sys.modules["site_shop"]


def test_installed_modules_come_first(site: Site, elsewhere: Site) -> None:
    site.module("site_shop", BACKEND.format(name="shop"))
    elsewhere.module("site_shop", "raise SystemExit")
    assert backend_registry.load_class("site_shop:shop", [elsewhere.folder]).name == "shop"


def test_a_plain_folder_of_the_same_name_hides_no_package(site: Site, elsewhere: Site) -> None:
    (site.folder / "site_shop").mkdir()
    elsewhere.module("site_shop", BACKEND.format(name="shop"))
    assert backend_registry.load_class("site_shop:shop", [elsewhere.folder]).name == "shop"


@pytest.mark.usefixtures("site")
def test_no_library_is_replaced_by_one_in_an_additional_path(elsewhere: Site) -> None:
    elsewhere.module("site_shop", "import wave\n" + BACKEND.format(name="shop"))
    for library in ("wave", "stevedore", "kip30"):
        elsewhere.module(library, "raise SystemExit")
    sys.modules.pop("wave", None)
    assert backend_registry.load_class("site_shop:shop", [elsewhere.folder]).name == "shop"


def test_claims_are_counted_before_any_is_imported(site: Site, elsewhere: Site) -> None:
    site.backend("shop")
    elsewhere.module("site_copy", "raise SystemExit")
    elsewhere.distribution("copycat", "shop = site_copy:shop")
    with pytest.raises(
        ConfigError, match=r"'shop' is claimed by site_shop:shop and site_copy:shop"
    ):
        backend_registry.find("shop", [elsewhere.folder])


@pytest.mark.parametrize("name", backend_registry.OWN_STORES)
def test_the_names_of_kip30s_own_stores_cannot_be_claimed(elsewhere: Site, name: str) -> None:
    elsewhere.module("site_thief", "raise SystemExit")
    elsewhere.distribution("thief", f"{name} = site_thief:x")
    with pytest.raises(ConfigError, match=rf"{name!r} is kip30's own and is claimed by site_thief"):
        backend_registry.find(name, [elsewhere.folder])


def test_a_distribution_that_is_installed_too_counts_once(site: Site, elsewhere: Site) -> None:
    for place in (site, elsewhere):
        place.backend("shop")
    assert backend_registry.find("shop", [elsewhere.folder]).name == "shop"
    assert str(sys.modules["site_shop"].__file__).startswith(str(site.folder))


@pytest.mark.usefixtures("site")
def test_the_search_path_is_restored_after_a_failure(elsewhere: Site) -> None:
    elsewhere.broken("shop", "1 / 0")
    before = list(sys.path)
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        backend_registry.find("shop", [elsewhere.folder])
    assert sys.path == before


@pytest.mark.usefixtures("site")
def test_an_additional_path_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.additional\.paths: there is no .*gone"):
        backend_registry.find("shop", [tmp_path / "gone"])


@pytest.mark.usefixtures("site")
def test_a_thread_finds_nothing_in_the_paths_of_another(elsewhere: Site) -> None:
    elsewhere.backend("shop")
    with ThreadPoolExecutor() as pool, AdditionalPaths([elsewhere.folder]).importable():
        other = pool.submit(importlib.util.find_spec, "site_shop")
        assert other.result() is None
        assert importlib.util.find_spec("site_shop") is not None
    assert importlib.util.find_spec("site_shop") is None


@pytest.mark.usefixtures("site")
def test_without_plugins_nothing_of_an_additional_path_is_imported(elsewhere: Site) -> None:
    elsewhere.broken("shop", "raise SystemExit")
    paths = [elsewhere.folder]
    assert backend_registry.names(paths) == ["shop"]
    with pytest.raises(NotLoadedError, match=r"'shop' is in plugin\.additional\.paths"):
        backend_registry.find("shop", paths, load_plugins=False)


def test_without_plugins_what_an_installed_store_lacks_may_be_there(
    site: Site, elsewhere: Site
) -> None:
    site.broken("shop", "import site_vendor")
    with pytest.raises(ConfigError, match="No module named 'site_vendor'"):
        backend_registry.find("shop")
    with pytest.raises(NotLoadedError, match=r"may be in plugin\.additional\.paths"):
        backend_registry.find("shop", [elsewhere.folder], load_plugins=False)


def test_a_fork_waits_for_an_import(site: Site) -> None:
    site.module("site_shop", f"import time; time.sleep(0.5)\n{BACKEND.format(name='shop')}")
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(backend_registry.load_class, "site_shop:shop")
        eventually(lambda: "site_shop" in sys.modules, what="the import has begun")
        loaded = in_forked_child(lambda: backend_registry.load_class("site_shop:shop").name)
        assert (loaded, loading.result().name) == ("shop", "shop")


@pytest.mark.usefixtures("site")
def test_a_child_searches_no_path_of_a_thread_that_it_does_not_have(elsewhere: Site) -> None:
    elsewhere.backend("shop")
    searching, done = threading.Event(), threading.Event()

    def search() -> None:
        with AdditionalPaths([elsewhere.folder]).importable():
            searching.set()
            done.wait()

    thread = threading.Thread(target=search)
    thread.start()
    searching.wait()
    found = in_forked_child(lambda: importlib.util.find_spec("site_shop") is not None)
    assert found == "False"
    assert in_forked_child(lambda: backend_registry.names([elsewhere.folder])) != ""
    done.set()
    thread.join()


# -- by what is configured


def test_chooses_what_is_named(site: Site, elsewhere: Site) -> None:
    site.backend("shop")
    site.backend("mall")
    elsewhere.backend("fair")
    fair = {"additional.paths": str(elsewhere.folder)}
    assert choose(backend="shop").name == "shop"
    assert choose(**{"locator.classname": "site_mall:mall"}).name == "mall"
    assert choose(backend="fair", **fair).name == "fair"
    assert choose(**{"locator.classname": "site_fair:fair"}, **fair).name == "fair"


def test_zookeeper_connect_alone_means_zookeeper(site: Site) -> None:
    for name in ("zookeeper", "etcd", "embedded"):
        site.backend(name)
    connect = {"zookeeper.connect": "a:2181"}
    assert chosen(connect).backend.name == "zookeeper"
    assert chosen({**connect, "plugin.backend": "etcd"}).backend.name == "etcd"


def test_a_choice_names_the_setting_that_made_it(site: Site) -> None:
    for name in ("zookeeper", "shop"):
        site.backend(name)
    by_class = {"plugin.locator.classname": "site_shop:shop", "zookeeper.connect": "a:2181"}
    assert chosen(by_class, "file:3")[1:] == ("plugin.locator.classname (file:3)", False)
    assert chosen({"plugin.backend": "shop"}, "file:3")[1:] == ("file:3", False)
    connect = chosen({"zookeeper.connect": "a:2181"}, "file:3")
    assert connect[1:] == ("zookeeper.connect (file:3)", False)


def test_zookeeper_connect_is_named_as_what_asks_for_a_store_that_is_not_there(site: Site) -> None:
    site.backend("embedded")
    connect = load({"zookeeper.connect": "a:2181"}, origin="file:3")
    with pytest.raises(ConfigError) as refused:
        backend_registry.choose(build(CommonSettings, connect), connect)
    assert str(refused.value) == (
        "zookeeper.connect (file:3) asks for the store zookeeper, which is not installed:"
        " install a backend of that name, or set plugin.backend"
    )


def test_with_nothing_named_the_only_usable_store_besides_the_embedded_one(site: Site) -> None:
    site.backend("embedded")
    site.broken("consul", "import site_consul_client")
    assert choose().name == "embedded"
    assert chosen({})[1:] == ("no other store is installed", True)
    site.backend("shop")
    forget_scan()
    _cache._c._internal.clear()
    assert choose().name == "shop"
    assert chosen({})[1:] == ("it is the only store installed besides embedded", True)


def test_with_nothing_named_several_stores_are_listed(site: Site) -> None:
    for name in ("embedded", "etcd", "consul"):
        site.backend(name)
    with pytest.raises(ConfigError) as refused:
        choose()
    assert str(refused.value) == (
        "several stores are installed: set plugin.backend to consul, etcd or embedded,"
        " in the properties file (./kip30.properties if none is named) or by `kip30 --backend`"
    )


def test_with_nothing_named_a_store_with_a_fault_of_its_own_is_not_passed_over(site: Site) -> None:
    site.backend("embedded")
    site.broken("shop", "1 / 0")
    with pytest.raises(ConfigError, match="backend 'shop' cannot be imported: ZeroDivisionError"):
        choose()


# -- what an import costs


@pytest.mark.parametrize("module", ["kip30", "kip30.config", "kip30.runtime.backend_registry"])
def test_importing_does_not_import_the_slow_libraries(module: str) -> None:
    slow = {"stevedore", "javaproperties", "importlib.metadata"}
    code = f"import sys, {module}; print({slow} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"
