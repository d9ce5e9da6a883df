"""Layout of the records in stores with paths, the same for all of them.

Below the namespace of the configuration, values are at ``kv/<namespace>/<name>``, members at
``group/<group>/<id>`` and leaders at ``service/<service>``, each part escaped, so that no name
leaves its place.
"""

from kip30.names import Key, escape


class Paths:
    """The places of one namespace of the configuration, absolute and without a slash at the end."""

    def __init__(self, namespace: str) -> None:
        """Lay out *namespace*, which is ``plugin.namespace``."""
        self.root: str = f"/{escape(namespace)}"

    def value(self, key: Key) -> str:
        """Return the path of the value of *key*."""
        return f"{self.namespace(key.namespace)}/{escape(key.name)}"

    def namespace(self, namespace: str) -> str:
        """Return the parent of all values of *namespace*."""
        return f"{self.root}/kv/{escape(namespace)}"

    def member(self, group: str, member_id: str) -> str:
        """Return the path of the member."""
        return f"{self.group(group)}/{escape(member_id)}"

    def group(self, group: str) -> str:
        """Return the parent of all members of *group*."""
        return f"{self.root}/group/{escape(group)}"

    def service(self, service: str) -> str:
        """Return the parent of all records about the leader of *service*."""
        return f"{self.root}/service/{escape(service)}"
