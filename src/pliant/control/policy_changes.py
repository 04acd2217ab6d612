"""What the audit shows of a changed policy: the paths of its fields, numbers and booleans, no secrets."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pliant.control.submit.policy import WORDS

MASK = "***"

VARIABLES = frozenset({"environmentVariables", "capturedEnvironment", "capturedVariables"})

FREE = frozenset(
    {"security", "relatedUrls", "probes", "imagePullPolicy", "imagePullSecrets", "createHomeDir"}
    | {"pvc", "s3", "configMapVolume", "secretVolume", "emptyDirVolume", "dataVolume", "servingConfiguration"}
    | {"initialReplicas", "activationReplicas", "concurrencyHardLimit", "metric", "metricThreshold"}
    | {"metricThresholdPercentage", "scaleToZeroRetentionSeconds", "scaleDownDelaySeconds"}
    | {"initializationTimeoutSeconds", "authorizationType", "authorizedUsers", "authorizedGroups"}
    | {"clusterLocalAccessOnly"}
)
"""Fields of a spec that have no effect and are kept as they are sent."""

HIDDEN = VARIABLES | FREE
"""Fields of which neither keys nor numbers are shown, as they may be a secret."""

_AMOUNT = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?([kKMGT]i?)?B?")

Path = tuple[str, ...]


def policy_changes(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """(path, old, new) of the fields that differ in two bodies of a policy, all of it JSON; empty: none."""
    old = dict(_fields(json.loads(before or "{}")))
    new = dict(_fields(json.loads(after)))
    for path in sorted(old.keys() | new.keys()):
        if path not in old or path not in new or old[path] != new[path]:
            was, now = (_told(path, them[path]) if path in them else "" for them in (old, new))
            yield ".".join(path), was, now


def _fields(tree: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each value with its path. A list is a value, and so is all that a hidden field holds, except a rule."""
    for name, value in tree.items():
        here = (*path, name)
        rule = here[0] == "rules" and isinstance(value, Mapping) and value.keys() <= WORDS
        if isinstance(value, Mapping) and (rule or name not in HIDDEN):
            yield from _fields(value, here)
        else:
            yield here, value


def _told(path: Path, value: Any) -> str:
    shown = _shown(value, hidden=not HIDDEN.isdisjoint(path), amounts="compute" in path)
    return shown if shown == MASK else json.dumps(shown, separators=(",", ":"))


def _shown(value: Any, *, hidden: bool, amounts: bool) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if hidden:
        return MASK
    if isinstance(value, list):
        return [_shown(each, hidden=hidden, amounts=amounts) for each in value]
    if isinstance(value, int | float) or (amounts and isinstance(value, str) and _AMOUNT.fullmatch(value)):
        return value
    return MASK
