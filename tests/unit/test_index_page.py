"""The page that a package index shows of kip30: the README, without what leads nowhere there."""

import re
from importlib.metadata import metadata
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


def test_the_page_links_to_addresses_alone() -> None:
    page = metadata("kip30")["Description"]
    targets = [target for _, target in LINK.findall(page)]
    assert targets
    assert all(target.startswith("https://") for target in targets)


def test_the_page_names_each_file_to_which_the_readme_links() -> None:
    page = metadata("kip30")["Description"]
    links = [target.partition("#") for _, target in LINK.findall(README.read_text())]
    files = {file for file, _, _ in links if file and "://" not in file}
    assert files
    assert all(f"(`{file}`)" in page for file in files)
    assert all((README.parent / file).is_file() for file in files)


def test_extras_are_installed_by_name() -> None:
    page = metadata("kip30")["Description"]
    assert "pip install 'kip30[etcd]'" in page
    assert "'.[" not in page
