"""What goes into running jobs and comes out of them: logs, exec, attach, port-forward, ssh."""
