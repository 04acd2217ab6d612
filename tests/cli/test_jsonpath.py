"""-o jsonpath: fields, indices and [*], as kubectl picks them."""

import shlex

import pytest

from tests.cli.items import pending, workload


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("{.items[*].name}", "a1 a2"),
        ("{[0].name}", "a1"),
        ("{[-1].phase}", "Pending"),
        ("{[0]['name']}{\"\\n\"}", "a1\n"),
        ("name: {[1].name}\\t{[7].name}.", "name: a2\t."),
        ("{[0].labels.none}", ""),
        ("{[0].allocatedResources.gpu}", "1.0"),
    ],
)
def test_what_is_picked(fake, run, template, made):
    fake.workloads = [workload("a1"), pending("a2")]
    done = run(f"pliant get jobs -p team-a -o {shlex.quote(f'jsonpath={template}')}")
    assert (done.code, done.out) == (0, made), done.err


def test_a_path_that_is_none(fake, run):
    done = run("pliant list -p team-a -o 'jsonpath={range .items[*]}'")
    assert done.code == 2 and "is not a path such as {.name}" in done.err
    assert run("pliant list -o jsonpat").code == 2
