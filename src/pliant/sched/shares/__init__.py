"""What each queue is due, and which job is next: fair shares, the order of queues, admission to quota."""
