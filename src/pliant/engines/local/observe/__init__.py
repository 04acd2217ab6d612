"""What lives on this machine, what it uses, and what the kernel has ended."""
