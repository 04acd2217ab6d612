"""asset and policy against the real routes: input and output."""

import io

from tests.cli.test_access import real

__all__ = ["real"]


def test_assets(real, run, tmp_path, monkeypatch):
    assert run("pliant asset list").out == "No assets.\n"
    image, two = tmp_path / "image.yaml", tmp_path / "two.json"
    image.write_text("image: ubuntu:24.04\n")
    two.write_text('{"gpuDevicesRequest": 2}')
    assert run(f"pliant asset create environment plain -f {image}").out == "environment plain created.\n"
    assert (
        run(f"pliant asset create compute two -f {two} --in-project default").out == "compute two created.\n"
    )
    lines = run("pliant asset list").out.splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["environment", "plain", "all"],
        ["compute", "two", "project"],
    ]
    assert run("pliant asset list compute --no-headers").out.split()[:4] == [
        "compute",
        "two",
        "project",
        "default",
    ]
    assert "gpuDevicesRequest: 2" in run("pliant asset describe compute two").out
    two.write_text('{"gpuDevicesRequest": 1}')
    assert run(f"pliant asset update compute two -f {two}").out == "compute two updated.\n"
    assert "gpuDevicesRequest: 1" in run("pliant asset describe compute two").out
    assert run("pliant asset delete compute two").out == "compute two deleted.\n"
    gone = run("pliant asset delete compute two")
    assert (gone.code, "compute two does not exist" in gone.err) == (3, True)


def test_values_of_credentials_are_read_and_never_shown(real, run, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    assert run("pliant asset create password robot --user bot").out == "password robot created.\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("KEY: hunter3\n"))
    assert run("pliant asset create generic-secret keys -f -").out == "generic-secret keys created.\n"
    for words in ("list -o json", "describe password robot", "describe generic-secret keys -o yaml"):
        assert "hunter" not in run(f"pliant asset {words}").out
    assert "KEY" in run("pliant asset describe generic-secret keys").out
    for words in ("create password x --value y", "create compute x", "create environment x --user y -f -"):
        assert run(f"pliant asset {words}").code == 2, words


def test_the_values_of_a_secret_are_what_the_file_says(fake, run, tmp_path):
    file = tmp_path / "secret.yaml"
    file.write_text("pin: 0123\nflag: yes\nday: 2026-01-01\nat: 2026-13-01\n'7': 1_000\n")
    run(f"pliant asset create generic-secret s -f {file}")
    pairs = fake.sent("POST", "/api/v1/asset/credentials/generic-secret")[0]["spec"]["keyValuePairs"]
    assert {pair["key"]: pair["value"] for pair in pairs} == {
        "pin": "0123",
        "flag": "yes",
        "day": "2026-01-01",
        "at": "2026-13-01",
        "7": "1_000",
    }


def test_a_file_that_cannot_be_sent_is_named(fake, run, tmp_path):
    file = tmp_path / "policy.yaml"
    for text, said in (
        ("rules: 2026-01-01", "write dates and times in quotes."),
        ("rules: 2026-13-01", " invalid YAML: month must be in 1..12."),
        ("rules:\n\t- a", " line 2: invalid YAML: found character '\\t' that cannot start any token."),
        ("[" * 10_000, " its values are nested too deep."),
        ("a: &x [*x]", "Circular reference"),
    ):
        file.write_text(text)
        done = run(f"pliant policy set trainings -f {file}")
        assert (done.code, said in done.err) == (2, True), done.err
        assert done.err.startswith(f"Error: --file {file}:")
    for text in ("value: 2026-13-01", "? [a]\n: b", "[" * 10_000):
        file.write_text(text)
        done = run(f"pliant apply -f {file}")
        assert (done.code, done.err.startswith(f"Error: {file}:")) == (2, True), done.err
    assert fake.requests == []


def test_policies(real, run, tmp_path):
    assert run("pliant policy list").out == "No policies are set.\n"
    file = tmp_path / "policy.yaml"
    file.write_text("rules:\n  compute:\n    gpuDevicesRequest:\n      max: 1\n")
    seen = run(f"pliant policy set trainings -f {file} --preview")
    assert seen.out.endswith("of 0 workloads would have been refused.\n"), seen
    assert run("pliant policy list").out == "No policies are set.\n", "a preview changes nothing"
    made = run(f"pliant policy set trainings -f {file} --in-project default")
    assert made.out == "Policy for trainings set for project default.\n"
    assert "max: 1" in run("pliant policy describe trainings --in-project default").out
    told = run("pliant policy describe trainings --effective default").out
    assert "compute.gpuDevicesRequest" in told
    refused = run("pliant submit big -i ubuntu -g 2 -p default")
    assert refused.code != 0
    assert "gpuDevicesRequest" in refused.err
    missing = run("pliant policy describe trainings")
    assert (missing.code, "pliant policy set trainings -f FILE" in missing.err) == (3, True)
    assert run("pliant policy delete trainings --in-project default").out == "Policy for trainings deleted.\n"
    file.write_text("- 1\n")
    assert run(f"pliant policy set trainings -f {file}").code == 2
    assert run("pliant policy set trainings -f nowhere.yaml").code == 2
