"""Records of other programs in etcd."""

from tests.unit.stores.unreadable import UnreadableCases


class TestUnreadable(UnreadableCases):
    escaped = "%2F.."
    before_namespace = "/"
