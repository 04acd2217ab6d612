"""The engines that run tasks: they share one contract and do not depend on one another."""
