"""The values that `--simulate` accepts, and its errors for others."""

import uuid

import pytest

from pliant.devices.simulated import SimulatedDevices, Spec, parse

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("1x2", Spec(1, 2, 16 * GIB, 32_000, 128 * GIB)),
        ("2x2:16G", Spec(2, 2, 16 * GIB, 32_000, 128 * GIB)),
        ("2x1:16Gi", Spec(2, 1, 16 * GIB, 16_000, 64 * GIB)),
        ("3x0:0:cpu=3.92,memory=12.3Gi", Spec(3, 0, 0, 3920, int(123 * GIB // 10))),
        ("1x0", Spec(1, 0, 0, 16_000, 64 * GIB)),
        (
            "1x2:16G:label=run.ai/type=a",
            Spec(1, 2, 16 * GIB, 32_000, 128 * GIB, (("run.ai/type", "a"),)),
        ),
        (
            "1x4:40G:label=b=2,cpu=500m,label=a=1",
            Spec(1, 4, 40 * GIB, 500, 256 * GIB, (("a", "1"), ("b", "2"))),
        ),
    ],
)
def test_specs(text, spec):
    assert parse(text) == spec


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "'' is not NODESxGPUS"),
        ("2", "'2' is not NODESxGPUS"),
        ("axb", "'axb' is not NODESxGPUS"),
        ("1x-1", "'1x-1' is not NODESxGPUS"),
        ("0x2", "0 nodes: must be 1 to"),
        ("1x65", "65 GPUs a node: must be 0 to 64"),
        ("1x2:", "the GPU memory: '' is not an amount of memory"),
        ("1x2:lots", "the GPU memory: 'lots' is not an amount of memory"),
        ("1x2:0", "a GPU with no memory"),
        ("1x2:16G:", "'' is none of cpu=CORES"),
        ("1x2:16G:cores=4", "'cores=4' is none of cpu=CORES"),
        ("1x2:16G:cpu=many", "cpu: 'many' is not a number of cores"),
        ("1x2:16G:cpu=0", "cpu must be above 0"),
        ("1x2:16G:memory=x", "memory: 'x' is not an amount"),
        ("1x2:16G:label=a", "'label=a' is not label=KEY=VALUE"),
        ("1x2:16G:label==a", "'label==a' is not label=KEY=VALUE"),
    ],
)
def test_bad_specs_say_what_where_and_how(text, what):
    with pytest.raises(ValueError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"--simulate {text}: {what}")
    assert "e.g. 1x2" in message


def test_names_run_over_all_specs_and_are_stable():
    first = SimulatedDevices(["2x1", "1x2:16G:label=run.ai/type=a"], "c1").nodes()
    again = SimulatedDevices(["2x1", "1x2:16G:label=run.ai/type=a"], "c1").nodes()
    other = SimulatedDevices(["2x1", "1x2:16G:label=run.ai/type=a"], "c2").nodes()
    assert first == again
    assert [node.name for node in first] == ["sim-0", "sim-1", "sim-2"]
    assert first[2].label("run.ai/type") == "a" and first[0].label("run.ai/type") is None
    assert all(node.simulated for node in first)
    uuids = [gpu.uuid for node in (*first, *other) for gpu in node.gpus]
    assert len(set(uuids)) == 8
    assert all(uuid.UUID(text.removeprefix("GPU-")).version == 5 for text in uuids)
    assert [gpu.index for gpu in first[2].gpus] == [0, 1]
