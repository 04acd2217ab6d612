"""Who is due what, and who is next: fair shares, the order of queues, admission to quota."""
