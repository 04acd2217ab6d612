"""What scripts import as `runai` where this folder's parent is on PYTHONPATH: a compatible runai.hpo."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)  # runai.elastic and runai.ga, where Pliant itself is installed
