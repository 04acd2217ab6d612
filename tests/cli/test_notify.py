"""notify against the real routes: input and output."""

from tests.cli.test_access import real

__all__ = ["real"]


def test_addresses(real, run):
    assert run("pliant notify list").out == "No notifications.\n"
    made = run("pliant notify add me@example.org --on end,preemption")
    assert made.out.startswith("Notification of me@example.org on end, preemption of your jobs. Id: ")
    assert "`pliant notify server`" in made.err
    identity = made.out.split()[-1]
    assert run("pliant notify add me@example.org").code == 5
    said = run("pliant notify server --smtp smtp.example.org:2525 --from p@example.org --security none")
    assert said.out == "Mail is sent by smtp.example.org:2525. Test it: pliant notify test\n"
    assert run("pliant notify test").out.startswith("1 message will be sent.")
    listed = run("pliant notify list").out
    assert identity in listed and "end,preemption" in listed
    assert "Mail server: smtp.example.org:2525 (none), from p@example.org" in listed
    hook = run("pliant notify add --url-file /etc/pliant/hook --everybody").out
    assert hook.startswith("Notification of /etc/pliant/hook on end, failure of all jobs. Id: ")
    assert run(f"pliant notify remove {identity} {hook.split()[-1]}").out.count(" removed.") == 2
    assert run("pliant notify server --remove").out == "Mail is switched off.\n"
    assert run(f"pliant notify remove {identity}").code == 3
    for words in (
        "add", "add a@b --url-file /x", "add a@b --on birth", "add a@b --on ,", "server --smtp h",
        "server --smtp h:x --from a@b",
    ):  # fmt: skip
        assert run(f"pliant notify {words}").code == 2, words
