"""Asynchronous data parallelism as a job: processes of servers and workers, and the supervisor that starts them."""
