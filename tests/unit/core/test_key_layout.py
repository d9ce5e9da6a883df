from hypothesis import given
from hypothesis import strategies as st

from kip30.driver.key_layout import Paths
from kip30.names import Key

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def test_layout() -> None:
    paths = Paths("my app")
    assert paths.root == "/my=20app"
    assert paths.value(Key("", "a.b")) == "/my=20app/kv/=/a.b"
    assert paths.member("a/b", "..") == "/my=20app/group/a=2Fb/=2E."
    assert paths.service("s") == "/my=20app/service/s"


@given(texts, texts, texts)
def test_every_place_is_below_its_parent_and_one_deep(root: str, parent: str, name: str) -> None:
    paths = Paths(root)
    for place, above in (
        (paths.value(Key(parent, name)), paths.namespace(parent)),
        (paths.member(parent, name), paths.group(parent)),
    ):
        assert place.startswith(f"{above}/")
        assert "/" not in place.removeprefix(f"{above}/")
        assert above.startswith(f"{paths.root}/")
