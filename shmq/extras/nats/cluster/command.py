"""``shmq cluster``: NATS servers on this host for trying, and checks of any cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from shmq.cli.shared import params
from shmq.cli.shared.exit_codes import Code
from shmq.cli.shared.flags import Group, json_flag, size_in_words
from shmq.cli.shared.output import age, amount, cell, note, show, show_json, show_table, table
from shmq.cli.shared.target import target_of
from shmq.extras.nats.client import transport
from shmq.extras.nats.cluster.binary import find_binary
from shmq.extras.nats.cluster.findings import find, leading
from shmq.extras.nats.cluster.local import LocalCluster
from shmq.extras.nats.cluster.observation import Server, observe
from shmq.plugins import find_transport

# With its packages alone, and for two of the commands.
if TYPE_CHECKING:
    from shmq.extras.nats.client.broker import NatsBroker
    from shmq.extras.nats.client.site import Copy

F = TypeVar("F", bound=Callable[..., Any])

_DIRECTORY: Final = "shmq-cluster"


def _add_dir_flag(command: F) -> F:
    return click.option(
        "-d",
        "--dir",
        "directory",
        type=params.FilePath(path_type=Path, file_okay=False),
        default=_DIRECTORY,
        show_default=True,
        metavar="DIR",
        help="The directory of the cluster: data, logs, configuration.",
    )(command)


def _add_monitor_flag(command: F) -> F:
    return click.option(
        "-m",
        "--monitor",
        "monitors",
        multiple=True,
        metavar="URL",
        help="The monitor of a server, http://HOST:8222; once for each.  [default: those of --dir]",
    )(command)


@click.group(cls=Group, epilog="Example: shmq cluster start --dir ./cluster")
def cluster() -> None:
    """Run NATS servers on this host for trying, and check those of any host.

    A cluster keeps each message on several hosts; docs/operate/cluster.md tells of real ones.
    """


@cluster.command(epilog="Example: shmq cluster start --dir ./cluster --sync-interval 2m")
@_add_dir_flag
@click.option(
    "--nodes", type=click.Choice(("1", "3", "5")), default="3", show_default=True, help="Servers."
)
@click.option(
    "--port",
    type=params.WholeRange(1024, 65_500),
    metavar="N",
    help="The first port; the others follow.  [default: some that are free]",
)
@click.option(
    "--name",
    default="shmq",
    show_default=True,
    metavar="NAME",
    help="The name of the cluster, and of its site.",
)
@click.option(
    "--sync-interval",
    "sync",
    default="always",
    show_default=True,
    metavar="always|TIME",
    help="When servers sync to disk: before each acknowledgement, or so often.",
)
@click.option(
    "--storage",
    type=params.size,
    default="1GiB",
    show_default=True,
    metavar="SIZE",
    help="What each server may keep.",
)
@click.option(
    "--binary",
    metavar="FILE",
    envvar="SHMQ_NATS_SERVER",
    help="The program nats-server, 2.12 or later.  [default: a package's, or of PATH]",
)
@click.option(
    "--site",
    "remotes",
    multiple=True,
    metavar="URL",
    help="The leaf-node port of another site, nats-leaf://HOST:PORT.",
)
@click.option(
    "--timeout",
    type=params.seconds,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How long the cluster may take to be ready.",
)
def start(
    directory: Path, binary: str | None, timeout: float, nodes: str, port: int | None, **given: Any
) -> None:
    """Start servers in the background, and print their URL.

    If DIR has a cluster, its servers that do not run are started as they were; the other options
    then say nothing. All servers are on this host, so the cluster ends with the host.
    """
    if (directory / "cluster.json").exists():
        made = LocalCluster.load(directory)
    else:
        find_binary(binary)  # or nothing is made
        made = LocalCluster.create(directory, nodes=int(nodes), first_port=port, **given)
    made.start(binary, timeout=timeout)
    for node in made.nodes:
        note(f"{node.name}, pid {node.pid}: monitor at {node.monitor}, log in {node.log}")
    show(made.url)


@cluster.command(epilog="Example: shmq cluster stop --dir ./cluster")
@_add_dir_flag
def stop(directory: Path) -> None:
    """End the servers of DIR; their data stays."""
    made = LocalCluster.load(directory)
    made.stop()
    show(f"the {len(made.nodes)} servers of {directory} have ended")


@cluster.command(epilog="Example: shmq cluster status -m http://a:8222 -m http://b:8222")
@_add_dir_flag
@_add_monitor_flag
@json_flag
@click.pass_context
def status(
    context: click.Context, directory: Path, monitors: tuple[str, ...], as_json: bool
) -> None:
    """Show the servers, and the streams with their leaders and lag."""
    servers = observe(_choose_monitors(directory, monitors))
    if as_json:
        show_json([dataclasses.asdict(server) for server in servers])
    else:
        _show_servers(servers)
        _show_streams(servers)
    away = any(server.problem is not None for server in servers)
    context.exit(Code.UNREACHED if away else Code.OK)


@cluster.command(epilog="Example: shmq cluster doctor -m http://a:8222 -m http://b:8222")
@_add_dir_flag
@_add_monitor_flag
@json_flag
@click.pass_context
def doctor(
    context: click.Context, directory: Path, monitors: tuple[str, ...], as_json: bool
) -> None:
    """Find what is wrong: versions, syncs, leaders, lag.

    It asks each server's monitor, so name all of them.
    """
    servers = observe(_choose_monitors(directory, monitors))
    found = find(servers)
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
    else:
        for one in found:
            subject = f"{one.subject}: " if one.subject else ""
            show(f"{one.severity}: {subject}{one.text}")
        if not found:
            show(f"the {len(servers)} servers are well")
    wrong = any(one.severity != "notice" for one in found)
    context.exit(Code.WRONG if wrong else Code.OK)


def _choose_monitors(directory: Path, given: Sequence[str]) -> Sequence[str]:
    return given or LocalCluster.load(directory).monitors


def _show_servers(servers: Sequence[Server]) -> None:
    made = table(["server", "version", "state", "syncs", "storage", "site"], right=["storage"])
    for server in servers:
        if server.problem is not None:
            made.add_row(*map(cell, (server.monitor, "", server.problem, "", "", "")))
            continue
        state = "leader" if server.name == server.meta_leader else "ok"
        syncs = "always" if server.syncs else f"{server.sync_interval:g} s"
        used = f"{amount(server.storage_used)} of {size_in_words(server.storage_limit)}"
        row = (server.name, server.version, state if server.healthy else "not healthy", syncs, used)
        made.add_row(*map(cell, (*row, server.domain)))
    show_table(made)


def _show_streams(servers: Sequence[Server]) -> None:
    streams = leading([server for server in servers if server.problem is None])
    if not streams:
        return
    made = table(
        ["stream", "leader", "copies", "messages", "lag", "copy of"],
        right=["copies", "messages", "lag"],
    )
    for stream in streams:
        lag = max((replica.lag for replica in stream.replicas), default=0)
        origins = ", ".join(
            f"{one.site}/{one.stream} (lag {one.lag})".removeprefix("/") for one in stream.origins
        )
        row = (stream.name, stream.leader or "none", stream.copies, stream.messages, lag, origins)
        made.add_row(*map(cell, row))
    show_table(made)


@cluster.command(epilog="Example: shmq --url nats://a:4222/eu cluster mirror events --site site-b")
@click.argument("name", metavar="STREAM")
@click.option(
    "--site", metavar="SITE", help="The site that keeps the copy.  [default: the stream's mirror]"
)
@click.option(
    "--copies",
    type=click.Choice(("1", "3", "5")),
    help="Servers of that site that keep it.  [default: as many as here]",
)
@json_flag
@click.pass_context
def mirror(
    context: click.Context, name: str, site: str | None, copies: str | None, as_json: bool
) -> None:
    """Have another site copy a stream, and show its lag.

    Readers there connect to the same namespace at that site. Run it again to see the lag.
    """
    with _connect_to_cluster(context) as broker:
        from shmq.extras.nats.client import site as site_copies  # noqa: PLC0415

        options = broker.stream(name).options
        there = site or options.mirror
        if there is None:
            raise click.UsageError(f"stream {name!r} has no mirror: name the site with --site")
        found = broker.connection.run(
            site_copies.mirror(
                broker.connection, name, options.partitions, there, int(copies) if copies else None
            )
        )
    _show_copies(found, as_json)


@cluster.command(
    epilog="Example: shmq --url nats://a:4222/all cluster collect events --from site-b/eu"
)
@click.argument("name", metavar="STREAM")
@click.option(
    "--from",
    "origins",
    multiple=True,
    required=True,
    metavar="SITE/NAMESPACE",
    help="Another site, and the namespace of the stream there; once for each.",
)
@json_flag
@click.pass_context
def collect(context: click.Context, name: str, origins: tuple[str, ...], as_json: bool) -> None:
    """Have a stream collect those of other sites.

    It takes in the records of the streams of its name there, and shows how far it is. It must
    exist at both sites, with as many partitions.
    """
    pairs = []
    for text in origins:
        site, slash, space = text.partition("/")
        if not (site and slash and space):
            raise click.BadParameter(f"{text!r} is not SITE/NAMESPACE", param_hint="--from")
        pairs.append((site, space))
    with _connect_to_cluster(context) as broker:
        from shmq.extras.nats.client import site as site_copies  # noqa: PLC0415

        found = broker.connection.run(
            site_copies.collect(broker.connection, name, broker.stream(name).partitions, pairs)
        )
    _show_copies(found, as_json)


def _connect_to_cluster(context: click.Context) -> NatsBroker:
    """Connect to the cluster of the command line. Raises UsageError for another place."""
    target = target_of(context)
    place = target.place
    if place.url is None or find_transport(place.url) is not transport:
        raise click.UsageError(
            f"this works on a cluster, and {target.origin} says "
            f"{place.url or f'namespace {place.namespace!r} of this host'}: name one with "
            f"--url nats://HOST:PORT/NAMESPACE"
        )
    return transport.connect(place.url, place.token, target.tls)


def _show_copies(found: Sequence[Copy], as_json: bool) -> None:
    if as_json:
        show_json([dataclasses.asdict(one) for one in found])
        return
    made = table(["copy", "messages", "lag", "heard"], right=["messages", "lag"])
    for one in found:
        heard = "never" if one.silent is None else f"{age(one.silent)} ago"
        made.add_row(*map(cell, (one.name, one.messages, one.lag, heard)))
    show_table(made)
