"""The agent of a task: runs one worker process for each device that the task holds. No torch."""
