"""What pydantic is told before anything imports FastAPI, so that a server starts sooner."""

import os

os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # looking for them means to read the metadata of all packages

from pydantic import BaseModel, ConfigDict

BaseModel.model_config = ConfigDict(defer_build=True)  # made when used: FastAPI has 40 for OpenAPI alone
