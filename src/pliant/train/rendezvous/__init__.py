"""How the workers of a job meet: the communicator of a generation, and the state that newcomers get."""
