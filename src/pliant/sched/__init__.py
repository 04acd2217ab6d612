"""The pure core: decide(world, now, settings) -> Plan."""
