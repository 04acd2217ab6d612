"""`pliant up --openid` and `pliant login sso`, as they are typed, with a real provider and a browser."""

import os
import re
import subprocess
import threading
import time

import httpx2

from examples.walkthrough import Stage
from tests.openid.rig import CLIENT_SECRET, SECONDS, canaille, free_port
from tests.openid.test_login import fields


def log_in(stage, url, provider, name):
    """Types `pliant login sso`, follows its instructions in a browser, and returns its output."""
    command = subprocess.Popen(
        ["pliant", "login", "sso", "--server", url],
        env=stage.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    late = threading.Timer(SECONDS * 2, command.kill)
    late.start()
    try:
        said = ""
        while "shows this code: " not in said or not said.endswith("\n"):
            line = command.stderr.readline()
            assert line, said
            said += line
        address = re.search(r"^  (http\S+)$", said, re.MULTILINE)[1]
        code = said.rsplit("shows this code: ", 1)[1].strip()
        with httpx2.Client(timeout=SECONDS) as browser:
            page = browser.get(provider.log_in(address, name))
            assert page.status_code == 200 and f'<code id="code">{code}</code>' in page.text, page.text
            allow = f"{url}/console/openid/allow"
            assert browser.post(allow, data=fields(page), headers={"Origin": url}).status_code == 200
        out, err = command.communicate(timeout=SECONDS)
        return command.returncode, out, said + err
    finally:
        late.cancel()
        command.kill()
        command.wait()
        command.stdout.close()
        command.stderr.close()


def test_a_person_logs_in_at_a_terminal_and_is_known_after_a_restart(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    stage = Stage(tmp_path / "stage")
    try:
        with canaille(tmp_path, url) as provider:
            settings = tmp_path / "openid.yaml"
            secret = tmp_path / "client-secret"
            settings.write_text(
                f"name: Lab login\nissuer: {provider.issuer}\nclient: pliant\nsecret-file: {secret}\n"
                f"address: {url}\nscopes: [profile, groups]\nallowed: [team]\nroles: [team=viewer]\n"
            )
            settings.chmod(0o666)
            refused = stage.run(f"pliant up --simulate 1x2 --port {port} --openid {settings}")
            assert refused.code != 0 and f"chmod go-w {settings}" in refused.said
            settings.chmod(0o644)
            done = stage.run(f"pliant up --simulate 1x2 --port {port} --openid {settings}")
            assert done.code == 0, done.said
            told = stage.run("pliant doctor").out
            assert re.search(r"login by Lab login +yes", told), told

            code, out, err = log_in(stage, url, provider, "anna")
            assert code == 0 and re.fullmatch(rf"Logged in as anna(@\S+)? at {url}\n", out), out + err
            who = stage.run(f"pliant whoami --server {url}")
            assert who.code == 0 and "anna" in who.out and "Viewer" in who.out, who.said
            # The server reads its earlier options from its state folder.
            restarted = stage.run("pliant restart")
            assert restarted.code == 0, restarted.said
            assert "anna" in stage.run(f"pliant whoami --server {url}").out
            again = httpx2.get(f"{url}/api/v1/openid").json()["providers"]
            assert [it["name"] for it in again] == ["Lab login"]
            code, out, err = log_in(stage, url, provider, "boris")
            assert code == 4 and out == "" and "boris is in none of the groups that may log in here" in err
            # A restarted server asks the provider again: the role of the group is removed, the key stays.
            provider.put(anna=["others"])
            assert stage.run("pliant restart").code == 0
            deadline = time.monotonic() + 240
            while "Viewer" in (who := stage.run(f"pliant whoami --server {url}")).out:
                assert time.monotonic() < deadline, who.said
                time.sleep(0.2)
            assert who.code == 0 and "anna" in who.out, who.said
            # No stored file or output contains the client's secret.
            for folder, _, names in os.walk(stage.folder):
                for name in names:
                    path = os.path.join(folder, name)
                    if os.path.isfile(path):
                        with open(path, "rb") as file:
                            assert CLIENT_SECRET.encode() not in file.read(), path
            assert CLIENT_SECRET not in done.said + told + err
            assert not any(CLIENT_SECRET in line for line in stage.processes().values())
    finally:
        left = stage.close()
    assert left == {}
