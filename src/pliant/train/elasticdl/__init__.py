"""Model files in ElasticDL's form, for PyTorch: `python -m pliant.train.elasticdl` runs one as a job."""

from pliant.train.elasticdl.columns import Column, numeric_column

__all__ = ["Column", "numeric_column"]
