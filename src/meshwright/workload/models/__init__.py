"""The catalogue of models: the config of each with its source, and any config.json of Hugging Face.

- `catalogue`: by name or from a file; `spelling`: names as people write them; `convolution`: residual networks
"""

from .catalogue import Model, load_model, model_names, resolve_model
from .convolution import Convolution

__all__ = ["Convolution", "Model", "load_model", "model_names", "resolve_model"]
