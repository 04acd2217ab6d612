"""The agent of a task: has one worker process for each device that the task holds. No torch."""
