"""All commands by name, each imported when it is used."""

import click

from pliant.cli.lazy import LazyGroup, remember

_SECTIONS = {
    "Every day": {
        "run": "pliant.cli.run:run",
        "submit": "pliant.cli.submit:submit",
        "submit-mpi": "pliant.cli.distributed:submit_mpi",
        "submit-dist": "pliant.cli.distributed:submit_dist",
        "list": "pliant.cli.listing:list_command",
        "describe": "pliant.cli.describe:describe",
        "get": "pliant.cli.describe:get",
        "apply": "pliant.cli.apply:apply",
        "logs": "pliant.cli.logs:logs",
        "exec": "pliant.cli.execute:exec_command",
        "bash": "pliant.cli.execute:bash",
        "attach": "pliant.cli.execute:attach",
        "wait": "pliant.cli.wait:wait",
        "cancel": "pliant.cli.actions:cancel",
        "suspend": "pliant.cli.actions:suspend",
        "resume": "pliant.cli.actions:resume",
        "delete": "pliant.cli.actions:delete",
        "why": "pliant.cli.why:why",
        "queue": "pliant.cli.why:queue",
        "what-if": "pliant.cli.whatif:what_if",
        "top": "pliant.cli.top:top",
    },
    "By kind of workload": {
        "training": "pliant.cli.typed:training",
        "workspace": "pliant.cli.typed:workspace",
        "inference": "pliant.cli.typed:inference",
        "workload": "pliant.cli.typed:workload",
        "pytorch": "pliant.cli.typed:pytorch",
        "mpi": "pliant.cli.typed:mpi",
        "tensorflow": "pliant.cli.typed:tensorflow",
        "xgboost": "pliant.cli.typed:xgboost",
        "jax": "pliant.cli.typed:jax",
    },
    "Organization and machines": {
        "project": "pliant.cli.project:project",
        "department": "pliant.cli.department:department",
        "node": "pliant.cli.node:node",
        "nodepool": "pliant.cli.nodepool:nodepool",
        "topology": "pliant.cli.topology:topology",
        "priorityclass": "pliant.cli.priorityclass:priorityclass",
        "cluster": "pliant.cli.cluster:cluster",
        "config": "pliant.cli.configure:config",
    },
    "Who you are": {
        "login": "pliant.cli.login:login",
        "logout": "pliant.cli.login:logout",
        "whoami": "pliant.cli.login:whoami",
        "auth": "pliant.cli.login:auth",
        "version": "pliant.cli.login:version",
        "help": "pliant.cli.help:help_command",
        "completion": "pliant.cli.completion:completion",
    },
    "The server": {
        "up": "pliant.cli.server:up",
        "down": "pliant.cli.server:down",
        "restart": "pliant.cli.server:restart",
        "status": "pliant.cli.server:status",
        "backup": "pliant.cli.maintenance:backup",
        "restore": "pliant.cli.maintenance:restore",
        "debug": "pliant.cli.maintenance:debug",
        "replay": "pliant.cli.replay:replay",
        "audit": "pliant.cli.audit:audit",
        "doctor": "pliant.cli.doctor:doctor",
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
            help="Project to work in.",
        ),
        click.Option(
            ["--server"], metavar="URL", expose_value=False, callback=remember, help="Server to talk to."
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
            help="Print no notices.",
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
            help="Print it.",
        ),
    ],
)
