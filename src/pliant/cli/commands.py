"""All commands by name, each imported when it is used."""

import click

from pliant.cli.lazy import LazyGroup, remember

_SECTIONS = {
    "Every day": {
        "run": "pliant.cli.workloads.run:run",
        "submit": "pliant.cli.submit.v1:submit",
        "submit-mpi": "pliant.cli.submit.distributed:submit_mpi",
        "submit-dist": "pliant.cli.submit.distributed:submit_dist",
        "list": "pliant.cli.workloads.listing:list_command",
        "describe": "pliant.cli.workloads.describe:describe",
        "get": "pliant.cli.workloads.describe:get",
        "apply": "pliant.cli.organization.apply:apply",
        "logs": "pliant.cli.streams.logs:logs",
        "exec": "pliant.cli.streams.execute:exec_command",
        "bash": "pliant.cli.streams.execute:bash",
        "ssh": "pliant.cli.streams.execute:ssh",
        "ssh-config": "pliant.cli.streams.secure_shell:ssh_config",
        "ssh-proxy": "pliant.cli.streams.secure_shell:ssh_proxy",
        "attach": "pliant.cli.streams.execute:attach",
        "port-forward": "pliant.cli.streams.forward:port_forward",
        "url": "pliant.cli.workloads.url:url_command",
        "wait": "pliant.cli.workloads.wait:wait",
        "cancel": "pliant.cli.workloads.lifecycle:cancel",
        "suspend": "pliant.cli.workloads.lifecycle:suspend",
        "resume": "pliant.cli.workloads.lifecycle:resume",
        "resize": "pliant.cli.workloads.resize:resize",
        "delete": "pliant.cli.workloads.lifecycle:delete",
        "share": "pliant.cli.workloads.share:share",
        "restore-files": "pliant.cli.workloads.trash:restore_files",
        "history": "pliant.cli.workloads.history:history",
        "why": "pliant.cli.workloads.why:why",
        "queue": "pliant.cli.workloads.why:queue",
        "what-if": "pliant.cli.workloads.whatif:what_if",
        "top": "pliant.cli.workloads.top:top",
    },
    "By kind of workload": {
        "training": "pliant.cli.workloads.typed:training",
        "workspace": "pliant.cli.workloads.typed:workspace",
        "inference": "pliant.cli.workloads.typed:inference",
        "workload": "pliant.cli.workloads.typed:workload",
        "pytorch": "pliant.cli.workloads.typed:pytorch",
        "mpi": "pliant.cli.workloads.typed:mpi",
        "tensorflow": "pliant.cli.workloads.typed:tensorflow",
        "xgboost": "pliant.cli.workloads.typed:xgboost",
        "jax": "pliant.cli.workloads.typed:jax",
    },
    "Organization and machines": {
        "project": "pliant.cli.organization.project:project",
        "department": "pliant.cli.organization.department:department",
        "node": "pliant.cli.cluster.node:node",
        "nodepool": "pliant.cli.cluster.nodepool:nodepool",
        "booking": "pliant.cli.cluster.booking:booking",
        "topology": "pliant.cli.cluster.topology:topology",
        "priorityclass": "pliant.cli.organization.priorityclass:priorityclass",
        "policy": "pliant.cli.organization.kept:policy",
        "asset": "pliant.cli.organization.kept:asset",
        "user": "pliant.cli.access.people:user",
        "app": "pliant.cli.access.people:app",
        "access-rule": "pliant.cli.access.rules:access_rule",
        "role": "pliant.cli.access.roles:role",
        "limit": "pliant.cli.organization.usage:limit",
        "report": "pliant.cli.organization.usage:report",
        "cluster": "pliant.cli.cluster.cluster:cluster",
        "config": "pliant.cli.organization.configure:config",
    },
    "Who you are": {
        "login": "pliant.cli.server.login:login",
        "logout": "pliant.cli.server.login:logout",
        "notify": "pliant.cli.organization.notify:notify",
        "whoami": "pliant.cli.server.login:whoami",
        "key": "pliant.cli.access.keys:key",
        "token": "pliant.cli.access.keys:key",
        "auth": "pliant.cli.server.login:auth",
        "version": "pliant.cli.server.login:version",
        "help": "pliant.cli.help:help_command",
        "completion": "pliant.cli.completion:completion",
    },
    "The server": {
        "serve": "pliant.cli.server.box:serve",
        "box": "pliant.cli.server.box:box",
        "up": "pliant.cli.server.lifecycle:up",
        "down": "pliant.cli.server.lifecycle:down",
        "restart": "pliant.cli.server.lifecycle:restart",
        "status": "pliant.cli.server.lifecycle:status",
        "console": "pliant.cli.server.console:console",
        "backup": "pliant.cli.server.maintenance:backup",
        "restore": "pliant.cli.server.maintenance:restore",
        "store": "pliant.cli.server.store:store",
        "debug": "pliant.cli.server.maintenance:debug",
        "replay": "pliant.cli.server.replay:replay",
        "sim": "pliant.cli.server.sim:sim",
        "audit": "pliant.cli.organization.audit:audit",
        "mcp": "pliant.cli.mcp.program:mcp",
        "doctor": "pliant.cli.server.doctor:doctor",
    },
}

_EPILOG = "Every command also takes --server URL, --state DIR, --quiet and --debug."


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from pliant import __version__

        click.echo(f"pliant {__version__}")
        ctx.exit()


cli = LazyGroup(
    _SECTIONS,
    name="pliant",
    help="Share the GPUs of one machine or of a cluster between teams.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    params=[
        click.Option(
            ["-p", "--project"],
            metavar="NAME",
            expose_value=False,
            callback=remember,
            help="Project (default: the configured one).",
        ),
        click.Option(
            ["--server"], metavar="URL", expose_value=False, callback=remember, help="URL of the server."
        ),
        click.Option(
            ["--state"],
            metavar="DIR",
            expose_value=False,
            callback=remember,
            help="State folder of a local server.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=remember,
            help="Do not print notes.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=remember,
            help="Show tracebacks.",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Print the version.",
        ),
    ],
)
