"""Records of other programs in Consul."""

from typing import ClassVar

from tests.unit.stores.unreadable import UnreadableCases


class TestUnreadable(UnreadableCases):
    escaped = "a=.."
    # A member's record is read whenever the session has been renewed twice.
    watching: ClassVar = {"plugin.session.timeout.ms": 4000}
