"""Input and output of running jobs: logs, exec, attach, port-forward, ssh."""
