"""cluster webhook: prints the webhook by which a cluster asks the server about pods with a part of a GPU."""

import base64
import re
from pathlib import Path
from string import Template

import click

from pliant.cli.lazy import Command

ACCOUNT = re.compile(r"[^'\"\\\s]+")

CONFIGURATION = Template("""\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: pliant-$scheduler
webhooks:
- name: pods.pliant.dev
  admissionReviewVersions: [v1]
  clientConfig:
    url: $url/kubernetes/pods
    caBundle: $bundle
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: Namespaced}
  matchConditions:
  - {name: scheduler, expression: "object.spec.schedulerName == '$scheduler'"}
  - name: part
    expression: >-
      has(object.metadata.annotations) &&
      ('gpu-fraction' in object.metadata.annotations || 'gpu-memory' in object.metadata.annotations)
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 5
""")

POLICY = Template("""\
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: pliant-$scheduler-annotations
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: Namespaced}
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods, pods/status, pods/resize, pods/ephemeralcontainers]
      operations: [UPDATE]
      scope: Namespaced
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [bindings, pods/binding]
      operations: [CREATE]
      scope: Namespaced
    - apiGroups: [pliant.dev]
      apiVersions: ["*"]
      resources: [departments, projects, nodepools, workloads]
      operations: [CREATE, UPDATE]
      scope: "*"
  matchConditions:
  - {name: others, expression: "request.userInfo.username != '$account'"}
  variables:
  - name: before
    expression: >-
      oldObject != null && has(oldObject.metadata.annotations) ?
      oldObject.metadata.annotations : {}
  - name: now
    expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
  - name: asked
    expression: >-
      request.kind.kind == 'Pod' && request.operation == 'CREATE' &&
      has(object.spec.schedulerName) && object.spec.schedulerName == '$scheduler' &&
      ('gpu-fraction' in variables.now || 'gpu-memory' in variables.now)
  validations:
  - expression: >-
      variables.now.all(key, !key.startsWith('pliant/') || (variables.asked && key == 'pliant/node-agent') ||
      (key in variables.before && variables.before[key] == variables.now[key])) &&
      variables.before.all(key, !key.startsWith('pliant/') || key in variables.now)
    message: >-
      Annotations pliant/... are written by Pliant alone: ask it for other limits,
      for example with pliant resize.
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: pliant-$scheduler-annotations
spec: {policyName: pliant-$scheduler-annotations, validationActions: [Deny]}
""")


@click.command("webhook", cls=Command)
@click.option(
    "--url", required=True, metavar="URL", help="Where the API server reaches this server: https://..."
)
@click.option(
    "--ca",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Certificate by which it knows it.",
)
@click.option("--scheduler-name", "scheduler", default="pliant", help="That of `pliant up` (pliant).")
@click.option(
    "--account",
    metavar="USER",
    help="The server's user on the cluster (`kubectl auth whoami` prints it). No other user may then write"
    " limits on pods. Needs Kubernetes 1.30.",
)
def webhook(url: str, ca: Path, scheduler: str, account: str | None) -> None:
    """Print what lets pods that others make have a part of a GPU, for `kubectl apply -f -`.

    The API server then asks the server about pods with the annotation gpu-fraction or gpu-memory. The server
    needs `pliant up --tls`. The Helm chart has this already.
    """
    if not url.startswith("https://"):
        raise click.UsageError(f"--url {url}: Kubernetes asks by https only.")
    bundle = base64.b64encode(ca.read_bytes()).decode()
    click.echo(CONFIGURATION.substitute(url=url.rstrip("/"), bundle=bundle, scheduler=scheduler), nl=False)
    if account:
        if not ACCOUNT.fullmatch(account):
            raise click.UsageError(f"--account {account}: that is no name of a user of a cluster.")
        click.echo(POLICY.substitute(scheduler=scheduler, account=account), nl=False)
