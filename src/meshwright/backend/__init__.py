"""What moves bytes: transports, the executor of schedules, the process group."""
