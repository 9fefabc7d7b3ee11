"""What moves bytes: transports, the executor of schedules, and the torch.distributed backend "meshwright"."""
