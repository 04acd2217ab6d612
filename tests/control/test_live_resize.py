"""The next server orders a live resize again that was recorded and never confirmed."""

from tests.control.stage import Stage


def test_a_resize_that_never_left_is_sent_after_a_restart(stage: Stage) -> None:
    wide = stage.submit("wide", elastic=True, live_resize=True)
    stage.run(1000)
    assert stage.view(wide).gpu == 2000
    stage.loop._orders.send = lambda order: None  # type: ignore[method-assign]  # the server dies in between
    other = stage.submit("other")
    stage.run(5000)
    assert stage.phase(other) == "Pending", "the GPU is carried until the job has confirmed"
    stage.reopen()
    stage.run(5000)
    assert (stage.view(wide).gpu, stage.phase(other)) == (1000, "Running")
    assert len(stage.service.attempts(wide)) == 1
