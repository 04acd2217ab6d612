"""What people change besides workloads: tenancy, machines, priorities, settings; what jobs report."""
