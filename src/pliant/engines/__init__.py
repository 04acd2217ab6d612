"""What runs tasks: one contract, several engines that do not know one another."""
