"""The catalogue of models: the config of each with its source, and any config.json of Hugging Face.

- `catalogue`: by name or from a file; `spelling`: names as people write them; `convolution`: residual networks
- `pyramid`: encoders of images whose stages differ in width (Swin)
"""

from .catalogue import Model, load_model, model_names, resolve_model
from .convolution import Convolution
from .pyramid import Pyramid

__all__ = ["Convolution", "Model", "Pyramid", "load_model", "model_names", "resolve_model"]
