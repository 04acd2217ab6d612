"""notify against the real routes: what is typed, what is printed."""

from tests.cli.test_access import real

__all__ = ["real"]


def test_addresses(real, run):
    assert run("pliant notify list").out == "No address is told anything.\n"
    made = run("pliant notify add me@example.org --on end,preemption")
    assert made.out.startswith("me@example.org is told about end, preemption of a job of yours. Id: ")
    assert "`pliant notify server`" in made.err
    identity = made.out.split()[-1]
    assert run("pliant notify add me@example.org").code == 5
    said = run("pliant notify server --smtp smtp.example.org:2525 --from p@example.org --security none")
    assert said.out == "Mail is sent by smtp.example.org:2525. Try it: pliant notify test\n"
    assert run("pliant notify test").out.startswith("1 message will be sent.")
    listed = run("pliant notify list").out
    assert identity in listed and "end,preemption" in listed
    assert "Mail server: smtp.example.org:2525 (none), from p@example.org" in listed
    hook = run("pliant notify add --url-file /etc/pliant/hook --everybody").out
    assert hook.startswith("/etc/pliant/hook is told about end, failure of any user's job. Id: ")
    assert run(f"pliant notify remove {identity} {hook.split()[-1]}").out.count(" removed.") == 2
    assert run("pliant notify server --remove").out == "No mail is sent any more.\n"
    assert run(f"pliant notify remove {identity}").code == 3
    for words in (
        "add", "add a@b --url-file /x", "add a@b --on birth", "add a@b --on ,", "server --smtp h",
        "server --smtp h:x --from a@b",
    ):  # fmt: skip
        assert run(f"pliant notify {words}").code == 2, words
