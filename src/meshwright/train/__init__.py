"""The worker: loop, data, checkpoints, recording, launch."""
