"""How the processes of attempts come to be: environment, confinement, supervisor, and as whom."""
