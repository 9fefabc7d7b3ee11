"""Messages: schedules compiled and executed over transports, and send and receive between two ranks."""
