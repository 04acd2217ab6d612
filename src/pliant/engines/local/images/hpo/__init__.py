"""The image quickstart-hpo, and the library runai.hpo that jobs find in it: searches shared by many tasks."""
