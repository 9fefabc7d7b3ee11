"""Pipeline parallelism: a model cut into stages, each on a rank, and micro-batches that flow through them."""
