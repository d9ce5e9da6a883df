"""A Kafka broker that keeps its metadata in a ZooKeeper of the tests, and its tools.

The last line of Kafka that runs on ZooKeeper; `kip30 servers install kafka` installs it. It is no
store of kip30, only a program with a tree worth reading.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers.installed import find
from kip30_conformance.servers.ports import HOST
from kip30_conformance.servers.supervisor_client import SupervisorClient

BROKER = 7
_NODE = 0
_SECONDS = 60.0
_JAVA = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_CONFIGS = "kafka.admin.ConfigCommand"
_PROPERTIES = f"""
broker.id={BROKER}
listeners=PLAINTEXT://{HOST}:{{port}}
log.dirs={{folder}}/logs
zookeeper.connect={{zookeeper}}
zookeeper.session.timeout.ms=60000
zookeeper.connection.timeout.ms=60000
offsets.topic.replication.factor=1
log.cleaner.enable=false
num.network.threads=1
num.io.threads=2
"""


class Broker:
    """A broker that runs.

    Attributes:
        properties: Its own ``server.properties``.
    """

    def __init__(self, properties: Path, port: int) -> None:
        """Administer the broker that has *properties* and listens on *port*."""
        self.properties = properties
        self._server = f"{HOST}:{port}"

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic; *settings* have ``_`` where Kafka has ``.``."""
        own = (f"{key.replace('_', '.')}={value}" for key, value in settings.items())
        options = [word for one in own for word in ("--config", one)]
        name_it = ("--create", "--topic", name, "--partitions", str(partitions))
        self._run(_TOPICS, *name_it, *options)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; the broker does it a little later."""
        self._run(_TOPICS, "--delete", "--topic", name)

    def set_of_topic(self, name: str, key: str, value: str) -> None:
        """Set *key* in the configuration of a topic."""
        topic = ("--entity-type", "topics", "--entity-name", name)
        self._run(_CONFIGS, "--alter", *topic, "--add-config", f"{key}={value}")

    def add_user(self, name: str, password: str) -> None:
        """Add a user who authenticates by SCRAM."""
        user = ("--entity-type", "users", "--entity-name", name)
        credentials = f"SCRAM-SHA-256=[iterations=4096,password={password}]"
        self._run(_CONFIGS, "--alter", *user, "--add-config", credentials)

    def _run(self, tool: str, *words: str) -> None:
        run_tool(tool, "--bootstrap-server", self._server, *words)


def run_tool(tool: str, *words: str) -> str:
    """Run a main class of Kafka's jars, which have ZooKeeper's as well; return what it prints.

    Raises:
        AssertionError: It failed; the message has what it printed.
    """
    done = subprocess.run(
        [*_java()[:-1], tool, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS * time_scale(),
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextmanager
def broker_on(zookeeper: str, folder: Path) -> Iterator[Broker]:
    """Start a broker on *zookeeper*, ``host:port/chroot``, with its files in *folder*.

    It is killed with the block, and with this process, however that ends.

    Raises:
        ServerMissingError: It is not installed.
        AssertionError: It did not register itself in time; the message has its log.
    """
    supervisor = SupervisorClient()
    try:
        (port,) = supervisor.ask("hold_ports", count=1)
        supervisor.ask("open_peers", ports=[[]])
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "server.properties"
        written = _PROPERTIES.format(port=port, folder=folder, zookeeper=zookeeper)
        properties.write_text(written)
        command = [*_java(), str(properties)]
        supervisor.ask("launch", node=_NODE, command=command, folder=str(folder), environment={})
        _await_registration(zookeeper, supervisor, folder / "log")
        yield Broker(properties, port)
    finally:
        supervisor.end()


def _java() -> list[str]:
    """Return the command of the broker: Java, its class path, and last the main class."""
    java, *words = find("kafka").command
    return [java, *_JAVA, *words]


def _await_registration(zookeeper: str, supervisor: SupervisorClient, log: Path) -> None:
    servers, _, chroot = zookeeper.partition("/")
    kazoo = KazooClient(hosts=servers)
    kazoo.start()

    def is_registered() -> bool:
        assert supervisor.ask("status", node=_NODE) is None, "it has ended"
        return kazoo.exists(f"/{chroot}/brokers/ids/{BROKER}") is not None

    try:
        eventually(is_registered, within=_SECONDS, what="a broker of Kafka is registered")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text(errors='replace')[-4000:]}") from None
    finally:
        kazoo.stop()
        kazoo.close()
