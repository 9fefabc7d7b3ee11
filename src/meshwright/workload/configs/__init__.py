"""config.json files of Hugging Face, by model type."""
