"""The use cases: submissions, streams, tenancy, machines, identities, settings, and what jobs report."""
