"""The program `elasticdl`: ElasticDL's command line, which submits a master and workers to Pliant."""

from pliant.cli.elasticdl.program import main as main
