"""The image quickstart-distributed: the quickstart's training by ranks in several tasks, over TCP."""
