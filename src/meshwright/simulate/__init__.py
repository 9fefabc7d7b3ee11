"""The event engine: tasks on devices, flows on links."""
