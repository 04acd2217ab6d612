"""Uses the vendor's own client, runapy, with a server of Pliant; runs in the environment of `setup`.

Reads {url, ca, id, secret, image} from its input. Prints a line of JSON for each call: its name, and the
problem, if the call failed or the client's model could not read the answer.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from runai import models
from runai.api_client import ApiClient
from runai.configuration import Configuration
from runai.exceptions import ApiException
from runai.runai_client import RunaiClient


def say(called: str, problem: str = "") -> None:
    print(json.dumps({"called": called, "problem": problem}), flush=True)


def call(function: Callable[..., Any], model: type | None = None, /, *args: Any, **named: Any) -> Any:
    """The answer's body; checks it, or each entry of a list, against `model`."""
    api = function.__self__
    name = next(it for it in dir(api) if getattr(api, it) == function)  # __name__ may be a wrapper's
    called = f"{type(api).__name__}.{name}"
    try:
        answer = function(*args, **named)
    except (ApiException, ValueError) as error:  # ValueError: a model refused its arguments
        say(called, f"{getattr(error, 'status', type(error).__name__)} {getattr(error, 'body', error)}"[:600])
        return {}
    told = answer.data if answer.data is not None else {}
    try:
        for each in told if isinstance(told, list) else [told]:
            if model is not None:
                model.from_dict(each)
        say(called)
    except ValueError as error:
        say(called, f"unreadable: {error}"[:1500])
    return told


def until_phase(get: Callable[..., Any], key: str, phase: str) -> None:
    deadline = time.monotonic() + 240
    while (seen := get(key).data["phase"]) != phase:
        assert time.monotonic() < deadline, f"{key} is {seen}, not {phase}"
        time.sleep(0.2)


def tokens(client: RunaiClient, config: Configuration) -> Configuration:
    """A configuration that logs in with a new access key."""
    auth = client.authentication_and_authorization
    own = {"client_id": config.client_id, "client_secret": config.client_secret}
    grant = models.TokenRequest(grant_type="client_credentials", **own)
    told = call(auth.tokens.grant_token, models.TokenResponse, grant)
    again = models.TokenRequest(grant_type="refresh_token", refresh_token=told["refreshToken"])
    call(auth.tokens.grant_token, models.TokenResponse, again)
    call(auth.tokens.grant_token_v2, models.OAuth2TokenResponse, "client_credentials", **own)
    old = models.AppTokenRequest(id=config.client_id, name="", secret=config.client_secret)
    call(auth.tokens.app_token, None, old)

    bots = auth.service_accounts
    made = models.ServiceAccountCreationRequest(name="outside-bot")
    bot = call(bots.create_service_account, models.ServiceAccountPostResponse, made)["id"]
    call(bots.get_service_accounts, None)
    call(bots.get_service_account_by_id, models.ServiceAccount, bot)
    call(bots.update_service_account_by_id, None, bot, models.ServiceAccountPatchRequest(enabled=False))
    secret = models.RegenerateServiceAccountSecretResponse
    call(bots.regenerate_service_account_secret, secret, bot)
    call(bots.delete_service_account_by_id, None, bot)

    person = auth.users.create_user({"email": "outside@example.org"}).data
    rule = {"subjectType": "user", "subjectId": person["id"], "roleName": "System administrator"}
    auth.access_rules.create_access_rule({**rule, "scopeType": "tenant"})
    word = "the word of another client"
    log_in(client, "outside@example.org", person["tempPassword"])
    auth.users.change_user_password({"currentPassword": person["tempPassword"], "newPassword": word})
    log_in(client, "outside@example.org", word)
    keys = auth.access_keys
    key = call(keys.create_access_key1, None, models.AccessKeyCreationRequest1(name="outside"))["id"]
    call(keys.get_access_keys, models.AccessKeys)
    call(keys.get_access_key_by_id1, models.AccessKey1, key)
    call(keys.get_access_keys_administration, models.AccessKeysAdministration)
    call(keys.delete_access_key_by_id, None, key)
    kept = keys.create_access_key1(models.AccessKeyCreationRequest1(name="kept")).data
    secret = call(keys.regenerate_access_key_secret, None, kept["id"])["clientSecret"]
    return Configuration(
        client_id=kept["clientId"],
        client_secret=secret,
        runai_base_url=config.runai_base_url,
        ssl_ca_cert=config.ssl_ca_cert,
        retry_enabled=False,
        logger=config.logger,
    )


def log_in(client: RunaiClient, name: str, word: str) -> None:
    """Its requests carry that user's token from now on."""
    asked = models.TokenRequest(grant_type="password", username=name, password=word)
    told = client.authentication_and_authorization.tokens.grant_token(asked).data
    client.api_client.set_default_header("authorization", f"Bearer {told['accessToken']}")


def resources(gpus: float) -> list[models.ResourcesNullable]:
    pool = models.ResourcesNodePool(id="default", name="default")
    return [models.ResourcesNullable(node_pool=pool, gpu=models.NonNullResource(deserved=gpus))]


def projects(client: RunaiClient, cluster: str) -> str:
    api = client.organizations.projects
    made = models.ProjectCreationRequest(
        name="outside", cluster_id=cluster, description="by another client", resources=resources(2)
    )
    # the client's Project1 is a project's measurements: it has no model of these answers
    key = str(call(api.create_project, None, made)["id"])
    told = call(api.get_project, None, key)
    asked = made.to_dict()
    assert all(told[name] == asked[name] for name in ("name", "clusterId", "description")), told
    assert told["resources"][0]["gpu"]["deserved"] == 2, told
    listed = call(api.get_projects, None, filter_by="name==outside", sort_by="name", limit=5)
    assert [each["id"] for each in listed["projects"]] == [key], listed
    call(api.count_projects, models.CountResponse, filter_by="name==outside")
    change = models.ProjectUpdateRequest(description="changed", resources=resources(3))
    told = call(api.update_project, None, key, change)
    assert (told["description"], told["resources"][0]["gpu"]["deserved"]) == ("changed", 3), told
    call(api.patch_project_resources, None, key, resources(2))
    call(api.update_project_resources, None, key, resources(4))
    end = datetime.now(UTC)
    span = {"start": end - timedelta(hours=1), "end": end}
    metric = ["GPU_ALLOCATION"]
    call(
        api.get_project_metrics, models.MetricsResponse, key, metric_type=metric, number_of_samples=5, **span
    )
    call(api.get_projects_telemetry, models.TelemetryResponse, telemetry_type="GPU_ALLOCATION")
    call(api.get_projects_0, None, cluster)
    return key


KINDS = {"training": "Training", "workspace": "Workspace"}


def workloads(client: RunaiClient, project: str, cluster: str, image: str) -> None:
    of = client.workloads
    spec = {
        "image": image,
        "compute": {"gpuDevicesRequest": 1, "cpuCoreRequest": 0.1, "cpuMemoryRequest": "20M"},
    }
    ids = {}
    for kind, name in KINDS.items():
        api = getattr(of, f"{kind}s")
        model = getattr(models, f"{name}1")
        request = getattr(models, f"{name}CreationRequest")
        asked = request.from_dict(
            {"name": f"outside-{kind}", "projectId": project, "clusterId": cluster, "spec": spec}
        )
        key = ids[kind] = call(getattr(api, f"create_{kind}1"), model, asked)["workloadId"]
        call(getattr(api, f"get_{kind}"), model, key)
        until_phase(of.workloads.get_workload, key, "Running")
        call(getattr(api, f"suspend_{kind}"), None, key)
        until_phase(of.workloads.get_workload, key, "Stopped")
        call(getattr(api, f"resume_{kind}"), None, key)
        until_phase(of.workloads.get_workload, key, "Running")
    asked = models.DistributedCreationRequest.from_dict(
        {
            "name": "outside-distributed",
            "projectId": project,
            "clusterId": cluster,
            "masterSpecSameAsWorker": True,
            "spec": {**spec, "distributedFramework": "PyTorch", "numWorkers": 1},
        }
    )
    key = ids["distributed"] = call(of.distributed.create_distributed, models.Distributed, asked).get(
        "workloadId", ""
    )
    call(of.distributed.get_distributed, models.Distributed, key)
    until_phase(of.workloads.get_workload, key, "Running")
    call(of.distributed.suspend_distributed, None, key)
    until_phase(of.workloads.get_workload, key, "Stopped")
    call(of.distributed.resume_distributed, None, key)

    key = ids["training"]
    listed = models.GetWorkloads200Response
    told = call(
        of.workloads.get_workloads, listed, filter_by="name==outside-training", sort_by="name", limit=5
    )
    assert [each["name"] for each in told["workloads"]] == ["outside-training"], told
    call(of.workloads.count_workloads, models.CountResponse, filter_by="phase==Running")
    call(of.workloads.get_workload, models.Workload, key)
    end = datetime.now(UTC)
    span = {"start": end - timedelta(hours=1), "end": end}
    asked = {"metric_type": ["GPU_ALLOCATION"], "number_of_samples": 5, **span}
    call(of.workloads.get_workload_metrics, models.MetricsResponse, key, **asked)
    call(of.workloads.get_workloads_telemetry, models.TelemetryResponse, telemetry_type="WORKLOADS_COUNT")
    call(of.pods.get_workload_pods, None, key)
    call(of.pods.list_pods, models.ListPods200Response)
    call(of.pods.count_pods, models.CountResponse)
    call(of.events.get_workload_events, models.GetWorkloadEvents200Response, key)
    call(of.events.get_workload_history, models.GetWorkloadHistory200Response, key)
    batch = models.WorkloadBatch(ids=[key], action="suspend")
    call(of.workloads_batch.batch_workloads, models.BatchResponse, batch)
    until_phase(of.workloads.get_workload, key, "Stopped")
    call(of.trainings.delete_training, None, key)
    call(of.workspaces.delete_workspace, None, ids["workspace"])
    call(of.distributed.delete_distributed, None, ids["distributed"])
    deadline = time.monotonic() + 240
    while of.workloads.count_workloads().data["count"]:
        assert time.monotonic() < deadline, "the workloads are still there"
        time.sleep(0.2)


def main() -> None:
    asked = json.load(sys.stdin)
    config = Configuration(
        client_id=asked["id"],
        client_secret=asked["secret"],
        runai_base_url=asked["url"],
        ssl_ca_cert=asked["ca"],
        retry_enabled=False,
        logger=logging.getLogger("runai"),
    )
    client = RunaiClient(ApiClient(config))
    client = RunaiClient(ApiClient(tokens(client, config)))
    cluster = call(client.organizations.clusters.get_clusters, None)[0]["uuid"]
    project = projects(client, cluster)
    workloads(client, project, cluster, asked["image"])
    call(client.organizations.projects.delete_project, None, project)


if __name__ == "__main__":
    main()
