"""Sets defaults of pydantic before anything imports FastAPI, so that a server starts faster."""

import os

os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # else pydantic reads the metadata of all packages

from pydantic import BaseModel, ConfigDict

BaseModel.model_config = ConfigDict(defer_build=True)  # built on first use: FastAPI has 40 for OpenAPI alone
